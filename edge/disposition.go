package edge

import (
	"cmp"
	"mime"
	"strings"
)

// inlineTypes are the content types that are passed on as stated. Everything
// else, above all what a browser would run, is told as bytes. The type is never
// guessed from content or name.
var inlineTypes = map[string]bool{
	"application/pdf": true, "application/json": true, "text/plain": true,
	"image/png": true, "image/jpeg": true, "image/tiff": true,
}

// safeType returns a stated content type if it is one that can do no harm.
func safeType(stated string) string {
	media, params, err := mime.ParseMediaType(stated)
	switch {
	case err != nil || !inlineTypes[media]:
		return "application/octet-stream"
	case media == "text/plain" && strings.EqualFold(params["charset"], "utf-8"):
		return "text/plain; charset=utf-8"
	}
	return media
}

// disposition is the Content-Disposition of a download (RFC 6266): the name in
// ASCII for old clients, and as it is for the others. A name is never a path.
func disposition(name, fallback string) string {
	name = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || strings.ContainsRune(`/\`, c) {
			return '_'
		}
		return c
	}, strings.ToValidUTF8(name, "_"))
	name = cmp.Or(strings.Trim(name, ". "), fallback)
	plain := strings.Map(func(c rune) rune {
		if c > '~' || strings.ContainsRune(`"%`, c) {
			return '_'
		}
		return c
	}, name)
	out := `attachment; filename="` + plain + `"`
	if plain != name {
		out += "; filename*=UTF-8''" + percentEncode(name)
	}
	return out
}

// percentEncode writes a value as RFC 8187, section 3.2.1, has it: all bytes but
// those of attr-char escaped.
func percentEncode(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if letter || strings.IndexByte("!#$&+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&0xf]})
	}
	return b.String()
}
