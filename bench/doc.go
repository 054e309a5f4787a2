// Package bench compares parts of the archive with libraries that do the same and
// that it does not use. It is a module of its own, so that the archive's module
// requires none of them.
package bench
