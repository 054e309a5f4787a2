package splitter

import (
	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// jsonFile is an element of files.
type jsonFile struct {
	Name        string  `json:"name"`
	ContentType string  `json:"contentType"`
	DataBase64  *string `json:"dataBase64"`
	OCR         *bool   `json:"ocr"`
}

// jsonAttachment is an element of attachments.
type jsonAttachment struct {
	Kind        string  `json:"kind"`
	ContentType string  `json:"contentType"`
	Name        string  `json:"name"`
	DataBase64  *string `json:"dataBase64"`
}

// jsonFiles takes the list of files: each is hashed here, and nothing is sent
// anywhere yet.
func (d *draft) jsonFiles(raw wire.RawJSON) (contents [][]byte, err error) {
	if raw == nil {
		return nil, nil
	}
	if err := stringIsURL("files", raw); err != nil {
		return nil, err
	}
	list, err := wire.Decode[[]wire.RawJSON](raw)
	if err != nil {
		return nil, refuseText(CodeBadJSON, "files", err)
	}
	if len(list) > d.limits.Files {
		return nil, d.tooManyFiles("files")
	}
	for i, element := range list {
		content, err := d.jsonFile(at("files", i), i, element)
		if err != nil {
			return nil, err
		}
		contents = append(contents, content)
	}
	return contents, nil
}

func (d *draft) jsonFile(field string, i int, raw wire.RawJSON) ([]byte, error) {
	if err := stringIsURL(field, raw); err != nil {
		return nil, err
	}
	in, err := wire.Decode[jsonFile](raw)
	if raw == nil || err == nil && in.DataBase64 == nil {
		return nil, refuse(CodeBadField, field, "dataBase64 is missing; send {name, contentType, dataBase64}")
	}
	if err != nil {
		return nil, refuseText(CodeBadJSON, field, err)
	}
	content, err := fromBase64(field+".dataBase64", *in.DataBase64)
	if err != nil {
		return nil, err
	}
	if in.Name == "" && isURL(content) {
		return nil, fileIsURL(field)
	}
	f, err := d.newFile(field, in.Name, in.ContentType)
	if err != nil {
		return nil, err
	}
	hasher := blob.NewHasher(blob.Default)
	if _, err := hasher.Write(content); err != nil {
		return nil, err
	}
	f.describe(hasher.Sum())
	d.addSlot(i).file = f
	if in.OCR != nil {
		d.fileOCR[i] = *in.OCR
	}
	return content, nil
}

// stringIsURL finds a link where an object or a list belongs.
func stringIsURL(field string, raw wire.RawJSON) error {
	if text, err := wire.Decode[string](raw); err == nil && isURL([]byte(text)) {
		return fileIsURL(field)
	}
	return nil
}

func (in *jsonAttachment) fill(d *draft, field string) error {
	if in.DataBase64 == nil {
		return refuse(CodeBadField, field, "dataBase64 is missing; send {kind, contentType, name, dataBase64}")
	}
	body, err := fromBase64(field+".dataBase64", *in.DataBase64)
	if err != nil {
		return err
	}
	return d.attach(field, Attachment{Kind: wire.Kind(in.Kind), ContentType: in.ContentType, Name: in.Name, Body: body})
}
