package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what Decode reads.
const (
	// MaxDepth is how deep objects and lists may nest in a payload. Opaque
	// values (RawJSON and the values of unknown keys) count anew from their own
	// start, so that metadata which was accepted alone fits every payload.
	MaxDepth = 64

	// MaxInteger is the largest magnitude of an integer: 2^53-1, the largest
	// that every reader of JSON keeps exact.
	MaxInteger = 1<<53 - 1
)

// Decode reads one JSON value of type T. It is the only way in for payloads of
// others, because encoding/json alone accepts what two readers of the same
// bytes understand differently. Refused, with an *Error that names the path and
// the offset, are:
//
//   - duplicate keys in any object, and keys that differ only in case from a
//     field known at that place (encoding/json would take them for the field);
//   - invalid UTF-8, escapes of lone surrogates, a byte order mark;
//   - data after the value, a value that is null as a whole, a value of another
//     type than the field's, lists of numbers for bytes;
//   - integers beyond MaxInteger, nesting beyond MaxDepth.
//
// Unknown keys are ignored at every level; inside their values, in RawJSON and
// in other opaque values only exact duplicates are refused. A field that is
// null counts as absent. The known keys of a level are the json names of the
// struct decoded there, embedded structs included. Numbers that land in an
// interface become json.Number. The result shares no memory with data.
func Decode[T any](data []byte) (T, error) {
	var v, zero T
	sh := shapeOf(reflect.TypeFor[T]())
	if err := scan(data, sh); err != nil {
		return zero, err
	}
	if err := unmarshal(data, &v, sh); err != nil {
		return zero, locate(data, sh, err)
	}
	return v, nil
}

// CheckJSON applies the rules of Decode to a value that is kept as bytes.
func CheckJSON(data []byte) error {
	if err := scan(data, opaque); err != nil {
		return err
	}
	return nil
}

// CheckObject applies the rules of Decode to bytes that must be one object, as
// metadata is.
func CheckObject(data []byte) error {
	if err := scan(data, opaqueObject); err != nil {
		return err
	}
	return nil
}

func unmarshal(data []byte, into any, sh *shape) error {
	if !sh.hasAny {
		return json.Unmarshal(data, into)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}

// scan applies the rules to data. The path to a fault is recorded only in a
// second pass, so that good input costs no memory.
func scan(data []byte, sh *shape) *Error {
	s := scanner{data: data}
	if s.document(sh) == nil {
		return nil
	}
	s = scanner{data: data, trace: true}
	return s.document(sh)
}

// locate finds the field that encoding/json could not read: it scans again and
// decodes every leaf by itself.
func locate(data []byte, sh *shape, cause error) error {
	s := scanner{data: data, trace: true, probe: true}
	if err := s.document(sh); err != nil {
		return err
	}
	return &Error{Offset: -1, Msg: cause.Error()}
}

// A scanner walks over one JSON text beside the shape of its type.
type scanner struct {
	data  []byte
	pos   int
	trace bool   // keep path; without it every fault is errUntraced
	path  []step // where pos is
	probe bool   // decode leaves by themselves; see locate

	watch *shape // when set, span is where the "sha256" of an object of this shape stood
	span  [2]int

	// When nulls is set, every null where a list or map belongs is noted in it.
	nulls *[]nullAt
}

// A nullAt is the place of a null and what the type would be written as empty.
type nullAt struct {
	pos   int
	empty string
}

// A step of a path is a key, or an index where key is nil.
type step struct {
	key   []byte
	index int
}

var errUntraced = &Error{Msg: "refused"}

func (s *scanner) push(st step) {
	if s.trace {
		s.path = append(s.path, st)
	}
}

func (s *scanner) pop() {
	if s.trace {
		s.path = s.path[:len(s.path)-1]
	}
}

func (s *scanner) fail(at int, format string, args ...any) *Error {
	if !s.trace {
		return errUntraced
	}
	return &Error{Field: s.where(), Offset: at, Msg: fmt.Sprintf(format, args...)}
}

func (s *scanner) where() string {
	var b strings.Builder
	for _, st := range s.path {
		if st.key == nil {
			b.WriteString("[" + strconv.Itoa(st.index) + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if name := string(st.key); strings.IndexFunc(name, isOddInPath) < 0 && len(name) <= 64 && name != "" {
			b.WriteString(name)
		} else {
			b.WriteString(show(name))
		}
	}
	return b.String()
}

func isOddInPath(r rune) bool {
	return r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// document reads the whole text.
func (s *scanner) document(sh *shape) *Error {
	if bytes.HasPrefix(s.data, []byte("\xef\xbb\xbf")) {
		return s.fail(0, "begins with a byte order mark; send plain UTF-8")
	}
	if !utf8.Valid(s.data) {
		return s.fail(firstInvalid(s.data), "not valid UTF-8")
	}
	if s.space(); s.pos == len(s.data) {
		return s.fail(s.pos, "empty; %s is expected", formNames[sh.form])
	}
	if canBeEmpty := s.nulls != nil && sh.empty() != ""; !canBeEmpty && bytes.HasPrefix(s.data[s.pos:], []byte("null")) {
		return s.fail(s.pos, "null; %s is expected", formNames[sh.form])
	}
	if err := s.value(sh, 0); err != nil {
		return err
	}
	if s.space(); s.pos < len(s.data) {
		return s.fail(s.pos, "data after the end of the value; send one JSON value")
	}
	return nil
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// unexpected complains about the byte at pos.
func (s *scanner) unexpected(want string) *Error {
	if s.pos >= len(s.data) {
		return s.fail(s.pos, "ends too early; %s is expected", want)
	}
	r, _ := utf8.DecodeRune(s.data[s.pos:])
	return s.fail(s.pos, "%q where %s is expected", r, want)
}

// value reads one value inside depth containers.
func (s *scanner) value(sh *shape, depth int) *Error {
	if sh.form == formAny && sh != opaque {
		depth = 0
	}
	c := s.peek()
	start := s.pos
	var err *Error
	switch {
	case c == '{':
		if sh.form > formDict {
			return s.fail(start, "an object where %s is expected", formNames[sh.form])
		}
		err = s.object(sh, depth+1)
	case c == '[':
		if sh.form != formAny && sh.form != formList {
			return s.fail(start, "a list where %s is expected", formNames[sh.form])
		}
		err = s.list(sh, depth+1)
	case c == '"':
		if sh.form != formAny && sh.form != formString {
			return s.fail(start, "a string where %s is expected", formNames[sh.form])
		}
		_, err = s.str()
	case c == '-' || '0' <= c && c <= '9':
		err = s.number(sh)
	default:
		err = s.literal(sh)
	}
	if err == nil && s.probe && sh.probe {
		err = s.tryLeaf(sh, start)
	}
	return err
}

// tryLeaf decodes the value that began at start by itself.
func (s *scanner) tryLeaf(sh *shape, start int) *Error {
	text := s.data[start:s.pos]
	cause := json.Unmarshal(text, reflect.New(sh.typ).Interface())
	if cause == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](cause)
	if !ok {
		return s.fail(start, "%s", strings.TrimPrefix(cause.Error(), "json: "))
	}
	located := *e
	switch {
	case e.Offset < 0 || sh.form == formString && bytes.Contains(text, []byte(`\`)):
		located.Offset = start // offsets in unescaped text are none in this one
	case sh.form == formString:
		located.Offset = start + 1 + e.Offset
	default:
		located.Offset = start + e.Offset
	}
	if path := s.where(); path != "" {
		return located.in(path)
	}
	return &located
}

func (s *scanner) object(sh *shape, depth int) *Error {
	if depth > MaxDepth {
		return s.fail(s.pos, "nested deeper than %d levels", MaxDepth)
	}
	s.pos++
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	var seen keySet
	for {
		if s.peek() != '"' {
			return s.unexpected("a key in double quotes")
		}
		start := s.pos
		key, err := s.key()
		if err != nil {
			return err
		}
		s.push(step{key: key})
		child, err := s.field(sh, key, start)
		if err != nil {
			return err
		}
		if !seen.add(key) {
			return s.fail(start, "the key stands twice in one object")
		}
		if s.peek() != ':' {
			return s.unexpected("a colon")
		}
		s.pos++
		s.space()
		at := s.pos
		if err := s.value(child, depth); err != nil {
			return err
		}
		if sh == s.watch && string(key) == "sha256" {
			s.span = [2]int{at, s.pos}
		}
		s.pop()
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.unexpected("a comma or a closing brace")
		}
	}
}

// field returns the shape of the value under key.
func (s *scanner) field(sh *shape, key []byte, at int) (*shape, *Error) {
	switch sh.form {
	case formDict:
		return sh.elem, nil
	case formAny:
		return opaque, nil
	}
	if child, ok := sh.fields[string(key)]; ok {
		return child, nil
	}
	if exact, ok := sh.folded[fold(string(key))]; ok {
		return nil, s.fail(at, "the key differs from %q only in case; write it exactly so", exact)
	}
	return unknown, nil
}

func (s *scanner) list(sh *shape, depth int) *Error {
	if depth > MaxDepth {
		return s.fail(s.pos, "nested deeper than %d levels", MaxDepth)
	}
	elem := sh.elem
	if elem == nil {
		elem = opaque
	}
	s.pos++
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		s.push(step{index: i})
		if err := s.value(elem, depth); err != nil {
			return err
		}
		s.pop()
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.unexpected("a comma or a closing bracket")
		}
	}
}

// key reads the string at pos and returns what it means.
func (s *scanner) key() ([]byte, *Error) {
	start := s.pos
	escaped, err := s.str()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return s.data[start+1 : s.pos-1 : s.pos-1], nil
	}
	var name string
	if err := json.Unmarshal(s.data[start:s.pos], &name); err != nil {
		return nil, s.fail(start, "not a key: %v", err)
	}
	return append([]byte{}, name...), nil
}

// str reads the string at pos, and says whether it has escapes.
func (s *scanner) str() (escaped bool, err *Error) {
	s.pos++
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return true, err
			}
		case c < 0x20:
			return escaped, s.fail(s.pos, "a control character in a string; write it as an escape")
		default:
			s.pos++
		}
	}
	return escaped, s.fail(s.pos, "ends inside a string")
}

func (s *scanner) escape() *Error {
	rest := s.data[s.pos:]
	if len(rest) < 2 {
		return s.fail(s.pos, "ends inside a string")
	}
	if rest[1] != 'u' {
		if !bytes.ContainsRune([]byte(`"\/bfnrt`), rune(rest[1])) {
			return s.fail(s.pos, "not an escape of JSON")
		}
		s.pos += 2
		return nil
	}
	r, ok := hex4(rest)
	switch {
	case !ok:
		return s.fail(s.pos, `four hexadecimal characters are expected after \u`)
	case 0xdc00 <= r && r <= 0xdfff:
		return s.fail(s.pos, "the escape of a lone surrogate, which is no character")
	case 0xd800 <= r && r <= 0xdbff:
		if low, ok := hex4(rest[6:]); !ok || low < 0xdc00 || low > 0xdfff {
			return s.fail(s.pos, "the escape of a lone surrogate, which is no character")
		}
		s.pos += 6
	}
	s.pos += 6
	return nil
}

// hex4 reads \uXXXX.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		v := hexValue[c]
		if v == 0xff {
			return 0, false
		}
		r = r<<4 | rune(v)
	}
	return r, true
}

// number reads a number by the grammar of RFC 8259, section 6.
func (s *scanner) number(sh *shape) *Error {
	start := s.pos
	if s.data[s.pos] == '-' {
		s.pos++
	}
	digits := s.pos
	if n := s.digits(); n == 0 {
		return s.unexpected("a digit")
	} else if n > 1 && s.data[digits] == '0' {
		return s.fail(digits, "a number with a leading zero")
	}
	end, whole := s.pos, true
	if s.at('.') {
		s.pos++
		if whole = false; s.digits() == 0 {
			return s.unexpected("a digit")
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if whole = false; s.digits() == 0 {
			return s.unexpected("a digit")
		}
	}
	switch sh.form {
	case formAny:
		return nil
	case formInt, formUint, formFloat:
	default:
		return s.fail(start, "a number where %s is expected", formNames[sh.form])
	}
	if !whole && sh.form != formFloat {
		return s.fail(start, "%s is expected, written without a fraction or exponent", formNames[sh.form])
	}
	if sh.form == formUint && digits != start {
		return s.fail(start, "%s is expected", formNames[sh.form])
	}
	if whole && tooBig(s.data[digits:end]) {
		return s.fail(start, "beyond %d, the largest integer every reader keeps exact", MaxInteger)
	}
	return nil
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }

// digits skips a run of digits and returns how many there were.
func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// tooBig reports whether a decimal without leading zeros is beyond MaxInteger.
func tooBig(decimal []byte) bool {
	const limit = "9007199254740991"
	return len(decimal) > len(limit) || len(decimal) == len(limit) && string(decimal) > limit
}

// literal reads true, false or null.
func (s *scanner) literal(sh *shape) *Error {
	for _, word := range [...]string{"true", "false", "null"} {
		if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
			continue
		}
		if word != "null" && sh.form != formAny && sh.form != formBool {
			return s.fail(s.pos, "%s where %s is expected", word, formNames[sh.form])
		}
		if empty := sh.empty(); word == "null" && s.nulls != nil && empty != "" {
			*s.nulls = append(*s.nulls, nullAt{s.pos, empty})
		}
		s.pos += len(word)
		return nil
	}
	return s.unexpected(formNames[sh.form])
}

// A keySet holds the keys of one object. Most objects are small, so the first
// ones are kept in place and compared one by one.
type keySet struct {
	few  [16][]byte
	n    int
	many map[string]struct{}
}

// add reports whether key is new.
func (k *keySet) add(key []byte) bool {
	for _, have := range k.few[:k.n] {
		if string(have) == string(key) {
			return false
		}
	}
	if k.n < len(k.few) {
		k.few[k.n] = key
		k.n++
		return true
	}
	if _, dup := k.many[string(key)]; dup {
		return false
	}
	if k.many == nil {
		k.many = map[string]struct{}{}
	}
	k.many[string(key)] = struct{}{}
	return true
}
