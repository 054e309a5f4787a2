package docs_test

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
)

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	seen := 0
	for _, doc := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(prose(read(t, doc)), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // of the web
			}
			seen++
			file := doc
			if target != "" {
				file = path.Join(path.Dir(doc), target)
			}
			if _, err := fs.Stat(repository(), file); err != nil {
				t.Errorf("%s: the link %s: %v", doc, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: the link %s: %s has no heading of that name, only %q", doc, m[1], file, anchors(read(t, file)))
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d links were found: the search sees too little", seen)
	}
}

// prose is a document without its code blocks.
func prose(text string) string { return fence.ReplaceAllString(text, "") }

// anchors are the names under which headings can be linked to.
func anchors(text string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(prose(text), -1) {
		list = append(list, strings.Map(func(c rune) rune {
			switch {
			case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
				return unicode.ToLower(c)
			case c == ' ':
				return '-'
			}
			return -1
		}, m[1]))
	}
	return list
}

// Every document can be reached from the README.
func TestEveryDocumentIsLinked(t *testing.T) {
	reached, next := map[string]bool{}, []string{"README.md"}
	for len(next) > 0 {
		doc := next[0]
		next = next[1:]
		if reached[doc] || path.Ext(doc) != ".md" {
			continue
		}
		reached[doc] = true
		for _, m := range link.FindAllStringSubmatch(prose(read(t, doc)), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target != "" && !strings.Contains(target, ":") {
				next = append(next, path.Join(path.Dir(doc), target))
			}
		}
	}
	for _, doc := range documents(t) {
		if !reached[doc] {
			t.Errorf("%s: no way leads to it from the README", doc)
		}
	}
}

// What belongs to one machine, or is not done, has no place in documents and
// examples.
func TestNothingOfOneMachineIsTold(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"a path of one machine": regexp.MustCompile(`(^|[^[:alnum:]._])/(work|farm|root|home|tmp|Users)/`),
		"work that is not done": regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`),
		"a package registry":    regexp.MustCompile(`(proxy\.golang|registry\.npmjs|deb\.debian)\.`),
	}
	files := documents(t)
	err := fs.WalkDir(repository(), "docs/examples", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for n, line := range strings.Split(read(t, file), "\n") {
			for what, pattern := range forbidden {
				if found := pattern.FindString(line); found != "" {
					t.Errorf("%s:%d: %q is %s", file, n+1, found, what)
				}
			}
		}
	}
}
