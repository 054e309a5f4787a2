package blob

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/verae/archive/internal/fault"
)

const (
	typeRaw      = "application/vnd.ipld.raw"
	codeBadQuery = "BAD_QUERY"
)

// otherFormats are what gateways serve elsewhere, and this one does not: all are
// made of blocks, which are served.
var otherFormats = map[string]bool{
	"car": true, "tar": true, "json": true, "cbor": true, "dag-json": true, "dag-cbor": true, "ipns-record": true,
}

// formOf tells whether a block is asked for rather than a file, and whether the
// Accept header had a part in it. The parameter beats the header (IPIP-523). A
// client that asks for something else must not get a file.
func formOf(query url.Values, accept []string) (raw, negotiated bool, err error) {
	rawQ, fileQ, other := weigh(accept)
	if query.Has("format") {
		format := query["format"]
		switch {
		case len(format) > 1:
			return false, false, fault.New(fault.Invalid, codeBadQuery, "format is given %d times; give it once", len(format)).InField("format")
		case format[0] == "raw":
			return true, len(accept) > 0, nil
		case otherFormats[format[0]]:
			return false, false, refuse(http.StatusNotAcceptable, codeNotAcceptable, "the format %s is not served; ask for the blocks with format=raw, or leave the parameter out for the file", format[0])
		}
		return false, false, fault.New(fault.Invalid, codeBadQuery, "there is no format %.32q; give raw for a block, or leave the parameter out for the file", format[0]).InField("format")
	}
	switch {
	case rawQ > 0 && rawQ >= fileQ:
		return true, true, nil
	case fileQ > 0 || rawQ <= 0 && !other:
		return false, false, nil
	}
	return false, false, refuse(http.StatusNotAcceptable, codeNotAcceptable, "the file, and its blocks as %s, are all that is served, and the Accept header excludes them", typeRaw)
}

const codeNotAcceptable = "NOT_ACCEPTABLE"

// weigh reads an Accept header (RFC 9110, section 12.5.1): how much a block is
// wanted, how much a file, as which any media type counts that is none of IPLD,
// and whether something else of IPLD is named. Without a header all are zero.
func weigh(accept []string) (raw, file float64, other bool) {
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(part, ";")
			media = strings.ToLower(strings.TrimSpace(media))
			switch {
			case media == "":
			case media == typeRaw:
				raw, other = max(raw, quality(params)), true
			case strings.HasPrefix(media, "application/vnd.ipld."), strings.HasPrefix(media, "application/vnd.ipfs."), media == "application/x-tar":
				other = true
			default:
				file = max(file, quality(params))
			}
		}
	}
	return raw, file, other
}

// quality is the weight among the parameters of a media range. One that can not
// be read counts as 1, the default.
func quality(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
	}
	return 1
}
