package archive

import (
	"cmp"
	"slices"
	"strings"
)

// unordered takes the findings of goroutines that look side by side, and gives them
// in an order that does not depend on who came first. It keeps as many damages and
// as many others as a report lists, the first in that order, and counts the rest.
type unordered struct {
	kept    [2][]Finding // damages, and others
	dropped [2]uint64
}

func (u *unordered) add(f Finding) {
	i := 1
	if f.Damage {
		i = 0
	}
	if u.kept[i] = append(u.kept[i], f); len(u.kept[i]) == 2*maxFindings {
		u.trim(i)
	}
}

func (u *unordered) trim(i int) {
	slices.SortFunc(u.kept[i], compareFindings)
	if more := len(u.kept[i]) - maxFindings; more > 0 {
		u.kept[i], u.dropped[i] = u.kept[i][:maxFindings], u.dropped[i]+uint64(more)
	}
}

// addTo adds all findings to a report.
func (u *unordered) addTo(r *CheckReport) {
	u.trim(0)
	u.trim(1)
	all := slices.Concat(u.kept[0], u.kept[1])
	slices.SortFunc(all, compareFindings)
	for _, f := range all {
		r.Add(f)
	}
	r.Found += u.dropped[0] + u.dropped[1]
	r.Damages += u.dropped[0]
}

// compareFindings orders findings by where they are.
func compareFindings(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Path, b.Path), strings.Compare(a.Kind, b.Kind), strings.Compare(a.What, b.What))
}
