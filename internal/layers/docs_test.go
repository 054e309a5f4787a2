package layers

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// checkComment wants one package comment, which says what the package is.
func checkComment(p string, pkg *pkg) []violation {
	var with []string
	for _, f := range pkg.files {
		doc := f.syntax.Doc.Text()
		if doc == "" {
			continue
		}
		with = append(with, f.name)
		if start := "Package " + pkg.name + " "; pkg.name != "main" && !strings.HasPrefix(doc, start) {
			return []violation{{f.name, fmt.Sprintf("the package comment begins with %q", start)}}
		}
	}
	switch {
	case len(with) == 0:
		return []violation{{p, "no file has a package comment; say what the package is, what it promises and where it stands in the flow"}}
	case len(with) > 1:
		return []violation{{with[1], "a second package comment beside that of " + with[0] + "; keep one"}}
	}
	return nil
}

// checkDocs wants a comment on every exported name of a file: functions, methods
// of exported types, types, and constants and variables, of which a comment on
// the group or at the end of the line is enough.
func checkDocs(f file) (found []violation) {
	if f.syntax.Name.Name == "main" {
		return nil // a program exports nothing
	}
	bare := func(name string) {
		found = append(found, violation{f.name, "exported " + name + " has no comment"})
	}
	for _, decl := range f.syntax.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if recv := receiver(d); d.Name.IsExported() && d.Doc == nil && (recv == "" || ast.IsExported(recv)) {
				bare(strings.TrimPrefix(recv+"."+d.Name.Name, "."))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				for _, name := range undocumented(d, spec) {
					bare(name)
				}
			}
		}
	}
	return found
}

// receiver returns the name of the type that d is a method of, or "".
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// undocumented returns the exported names of spec that no comment speaks of.
func undocumented(d *ast.GenDecl, spec ast.Spec) (names []string) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
			names = append(names, s.Name.Name)
		}
	case *ast.ValueSpec:
		if s.Doc != nil || s.Comment != nil || d.Doc != nil || d.Tok == token.IMPORT {
			return nil
		}
		for _, n := range s.Names {
			if n.IsExported() {
				names = append(names, n.Name)
			}
		}
	}
	return names
}
