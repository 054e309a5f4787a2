package splitter

import (
	"fmt"
	"slices"

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

// fill takes the i-th file. It is hashed here; nothing is sent anywhere yet.
func (in *jsonFile) fill(d *draft, i int) (content []byte, err error) {
	field := at("files", i)
	if in.DataBase64 == nil {
		return nil, refuse(CodeBadField, field, "dataBase64 is missing; send {name, contentType, dataBase64}")
	}
	if content, err = fromBase64(field+".dataBase64", *in.DataBase64); err != nil {
		return nil, err
	}
	in.DataBase64 = nil // the text is not needed any more, and may be large
	if in.Name == "" && isURL(content) {
		return nil, fileIsURL(field)
	}
	f, err := d.newFile(field, in.Name, in.ContentType)
	if err != nil {
		return nil, err
	}
	hasher := blob.NewHasher(f.Profile)
	if _, err := hasher.Write(content); err != nil {
		return nil, fmt.Errorf("splitter: hash a file: %w", err)
	}
	f.describe(hasher.Sum())
	d.addSlot(i).file = f
	if in.OCR != nil {
		d.fileOCR[i] = *in.OCR
	}
	return content, nil
}

// linkForFiles looks into a body that could not be read for a link where a file,
// or the list of them, belongs. It returns nil if that is not the trouble.
func linkForFiles(body []byte) error {
	in, err := wire.Decode[struct {
		Files wire.RawJSON `json:"files"`
	}](body)
	if err != nil || in.Files == nil {
		return nil
	}
	if isLink(in.Files) {
		return fileIsURL("files")
	}
	list, err := wire.Decode[[]wire.RawJSON](in.Files)
	if err != nil {
		return nil
	}
	if i := slices.IndexFunc(list, isLink); i >= 0 {
		return fileIsURL(at("files", i))
	}
	return nil
}

func isLink(raw wire.RawJSON) bool {
	text, err := wire.Decode[string](raw)
	return err == nil && isURL([]byte(text))
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
