package wire

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// A form is what JSON a Go type is decoded from.
type form uint8

const (
	formAny    form = iota // any value, not looked into
	formObject             // struct
	formDict               // map
	formList               // slice or array
	formString             // string, bytes, or a type that reads text
	formBool
	formInt
	formUint
	formFloat
)

var formNames = [...]string{"a value", "an object", "an object", "a list", "a string", "true or false", "an integer", "an integer that is not negative", "a number"}

// A shape is what Decode knows of a Go type.
type shape struct {
	form   form
	typ    reflect.Type      // nil for opaque values of unknown keys
	probe  bool              // decoding a leaf of this type can fail where the scan does not
	fields map[string]*shape // formObject: by exact name
	folded map[string]string // formObject: folded name -> exact name
	elem   *shape            // formList, formDict
	hasAny bool              // an interface is somewhere inside
}

// empty returns how an empty value of the shape is written, if it is a list or
// a map.
func (sh *shape) empty() string {
	switch sh.form {
	case formList:
		return "[]"
	case formDict:
		return "{}"
	}
	return ""
}

var (
	// opaque is any value whose depth goes on counting; unknown, the value
	// under a key that a struct does not know, counts from its own start.
	opaque       = &shape{form: formAny}
	unknown      = &shape{form: formAny}
	opaqueObject = &shape{form: formDict, elem: opaque}

	shapes sync.Map // reflect.Type -> *shape, complete ones only

	textReader = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonReader = reflect.TypeFor[json.Unmarshaler]()
)

func shapeOf(t reflect.Type) *shape {
	if sh, ok := shapes.Load(t); ok {
		return sh.(*shape)
	}
	seen := map[reflect.Type]*shape{}
	sh := buildShape(t, seen)
	for _, part := range seen {
		sh.hasAny = sh.hasAny || part.typ != nil && part.typ.Kind() == reflect.Interface
	}
	shapes.Store(t, sh)
	return sh
}

// buildShape follows the rules by which encoding/json picks a decoder.
func buildShape(t reflect.Type, seen map[reflect.Type]*shape) *shape {
	if sh, ok := seen[t]; ok {
		return sh
	}
	sh := &shape{typ: t}
	seen[t] = sh
	switch {
	case reflect.PointerTo(t).Implements(jsonReader):
		sh.form, sh.probe = formAny, true
		return sh
	case reflect.PointerTo(t).Implements(textReader):
		sh.form, sh.probe = formString, true
		return sh
	}
	switch t.Kind() {
	case reflect.Pointer:
		elem := buildShape(t.Elem(), seen)
		seen[t] = elem
		return elem
	case reflect.Struct:
		sh.form = formObject
		sh.fields, sh.folded = map[string]*shape{}, map[string]string{}
		for name, f := range jsonFields(t) {
			sh.fields[name] = buildShape(f.typ, seen)
			if f.quoted {
				sh.fields[name] = opaque
			}
			sh.folded[fold(name)] = name
		}
	case reflect.Map:
		sh.form, sh.elem = formDict, buildShape(t.Elem(), seen)
	case reflect.Slice, reflect.Array:
		sh.form = formList
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			sh.form, sh.probe = formString, true
			break
		}
		sh.elem = buildShape(t.Elem(), seen)
	case reflect.String:
		sh.form = formString
	case reflect.Bool:
		sh.form = formBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		sh.form, sh.probe = formInt, true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		sh.form, sh.probe = formUint, true
	case reflect.Float32, reflect.Float64:
		sh.form, sh.probe = formFloat, true
	}
	return sh
}

// A jsonField is a field as encoding/json sees it.
type jsonField struct {
	typ    reflect.Type
	tagged bool
	quoted bool // ",string": the value stands inside a string
}

// jsonFields returns the fields by which t is decoded. Those of embedded
// structs are promoted: the shallowest of a name wins, at one depth a single
// tagged one; otherwise the name is known to nobody.
func jsonFields(t reflect.Type) map[string]jsonField {
	found, taken := map[string]jsonField{}, map[string]bool{}
	visited := map[reflect.Type]bool{t: true}
	for level := []reflect.Type{t}; len(level) > 0; {
		here, below := map[string][]jsonField{}, []reflect.Type(nil)
		for _, st := range level {
			for sf := range st.Fields() {
				if inner := promoted(sf); inner == nil {
					addField(here, sf)
				} else if !visited[inner] {
					visited[inner] = true
					below = append(below, inner)
				}
			}
		}
		for name, fs := range here {
			if f, ok := dominant(fs); ok && !taken[name] {
				found[name] = f
			}
			taken[name] = true
		}
		level = below
	}
	return found
}

// promoted returns the struct type whose fields sf passes on, or nil.
func promoted(sf reflect.StructField) reflect.Type {
	t := sf.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, _, _ := strings.Cut(sf.Tag.Get("json"), ","); sf.Anonymous && name == "" && t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// addField adds sf under its JSON name, if it has one.
func addField(here map[string][]jsonField, sf reflect.StructField) {
	tag := sf.Tag.Get("json")
	if !sf.IsExported() || tag == "-" {
		return
	}
	name, opts, _ := strings.Cut(tag, ",")
	f := jsonField{typ: sf.Type, tagged: name != "", quoted: strings.Contains(","+opts+",", ",string,")}
	if name == "" {
		name = sf.Name
	}
	here[name] = append(here[name], f)
}

// dominant picks among fields of one name at one depth.
func dominant(fs []jsonField) (f jsonField, ok bool) {
	if len(fs) == 1 {
		return fs[0], true
	}
	n := 0
	for _, c := range fs {
		if c.tagged {
			f, n = c, n+1
		}
	}
	return f, n == 1
}

// fold returns s with every character replaced by the smallest one that equals
// it under Unicode simple folding, the equality by which encoding/json matches
// names: it takes the Kelvin sign for a "k".
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		low := r
		for c := unicode.SimpleFold(r); c != r; c = unicode.SimpleFold(c) {
			low = min(low, c)
		}
		return low
	}, s)
}
