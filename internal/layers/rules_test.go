package layers

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// rules are what a module promises about its own imports.
type rules struct {
	module    string            // its import path
	floors    []floor           // from the lowest to the highest
	owners    []owner           // of libraries and of std packages that need one
	users     []user            // who may import a package of ours, beside the floors
	stdOnly   map[string]string // packages that import nothing but std -> reason
	plainJSON map[string]string // packages that may decode with encoding/json -> reason
}

// A floor holds packages that may import those of lower floors, and not each
// other. Floors with one name are one floor of the design with an order in it.
type floor struct {
	name     string
	packages []string
}

// An owner says which packages may import a library. The longest matching
// library wins.
type owner struct {
	library  string
	packages []string
	reason   string
}

// A user says which packages may import one of ours.
type user struct {
	pkg      string
	packages []string
	reason   string
}

// A violation is a broken rule, with the place and the reason.
type violation struct {
	file, text string
}

func (v violation) String() string { return v.file + ": " + v.text }

// check returns every violation of the tree, in order of files.
func (r *rules) check(t tree) (found []violation) {
	for _, p := range slices.Sorted(maps.Keys(t)) {
		pkg := t[p]
		if _, known := r.floorOf(p); !known {
			found = append(found, violation{p, "the table of floors does not know this package; put it on one"})
		}
		found = append(found, checkComment(p, pkg)...)
		for _, f := range pkg.files {
			for _, spec := range f.syntax.Imports {
				found = append(found, r.checkImport(p, f.name, spec)...)
			}
			found = append(found, r.checkJSON(p, f)...)
			found = append(found, checkDocs(f)...)
		}
	}
	slices.SortStableFunc(found, func(a, b violation) int { return cmp.Compare(a.file, b.file) })
	return found
}

// checkImport judges one import of a file in package p.
func (r *rules) checkImport(p, file string, spec *ast.ImportSpec) (found []violation) {
	target, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return []violation{{file, "an import that cannot be read: " + spec.Path.Value}}
	}
	add := func(format string, args ...any) {
		found = append(found, violation{file, fmt.Sprintf("imports %s: ", target) + fmt.Sprintf(format, args...)})
	}
	own, ours := strings.CutPrefix(target, r.module+"/")
	if target == r.module {
		own, ours = ".", true
	}
	if ours {
		r.checkOwn(p, own, add)
	} else if o, owned := r.ownerOf(target); owned && !matchAny(o.packages, p) {
		add("belongs to %s; %s", list(o.packages), o.reason)
	} else if !owned && !isStd(target) {
		add("has no owner in the table; name one, with the reason")
	}
	if reason, strict := r.stdOnly[p]; strict && (ours || !isStd(target)) {
		add("%s imports the standard library only; %s", p, reason)
	}
	return found
}

// checkOwn judges the import of a package of the same module.
func (r *rules) checkOwn(p, target string, add func(string, ...any)) {
	from, known := r.floorOf(p)
	to, targetKnown := r.floorOf(target)
	switch {
	case !known || !targetKnown:
		add("the table of floors does not know both packages")
	case to >= from:
		add("imports run strictly downward, but %s is on floor %s and %s on floor %s; let %s declare what it needs, or move the shared part down",
			p, r.floors[from].name, target, r.floors[to].name, p)
	}
	for _, u := range r.users {
		if u.pkg == target && !matchAny(u.packages, p) {
			add("may be imported by %s only; %s", list(u.packages), u.reason)
		}
	}
}

// checkJSON finds decoding with encoding/json in a package that should decode
// with wire.
func (r *rules) checkJSON(p string, f file) (found []violation) {
	for pattern := range r.plainJSON {
		if match(pattern, p) {
			return nil
		}
	}
	name := importName(f.syntax, "encoding/json")
	if name == "" {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && (sel.Sel.Name == "Unmarshal" || sel.Sel.Name == "NewDecoder") {
			found = append(found, violation{f.name, "decodes with json." + sel.Sel.Name + ": use wire.Decode, which refuses what two readers would understand differently"})
		}
		return true
	})
	return found
}

// importName returns the name under which a file knows a package, or "".
func importName(f *ast.File, target string) string {
	for _, spec := range f.Imports {
		if spec.Path.Value == strconv.Quote(target) {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path.Base(target)
		}
	}
	return ""
}

// floorOf returns the index of the floor that package p stands on.
func (r *rules) floorOf(p string) (index int, known bool) {
	index = slices.IndexFunc(r.floors, func(f floor) bool { return matchAny(f.packages, p) })
	return index, index >= 0
}

// ownerOf returns the entry with the longest library that holds target.
func (r *rules) ownerOf(target string) (best owner, found bool) {
	for _, o := range r.owners {
		if (target == o.library || strings.HasPrefix(target, o.library+"/")) && len(o.library) > len(best.library) {
			best, found = o, true
		}
	}
	return best, found
}

// isStd reports whether target is of the standard library, whose first path
// element has no dot.
func isStd(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return !strings.Contains(first, ".")
}

// match reports whether p is the package that pattern names.
func match(pattern, p string) bool {
	ok, err := path.Match(pattern, p)
	return ok && err == nil
}

func matchAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return match(pattern, p) })
}

// list prints packages for a message.
func list(packages []string) string {
	if len(packages) == 0 {
		return "nobody"
	}
	return strings.Join(packages, ", ")
}
