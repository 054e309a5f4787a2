package jobs

import (
	"reflect"
	"testing"
)

// What an engine works with is its own: nobody changes it from outside.
func TestEngineShowsNoFields(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Engine]()) {
		if f.IsExported() && len(f.Index) == 1 || f.Anonymous {
			t.Errorf("field %s is seen from outside", f.Name)
		}
	}
}
