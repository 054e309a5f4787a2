// Package layers is the fence of the tree: a test that reads the source of the
// whole module and fails where a package reaches upward, uses a library that
// belongs to another one, or leaves an exported name without a comment. It has
// no code for production.
//
// The rules are data in table_test.go: the floors (imports run strictly
// downward), the owner of each library, and what else a file may not import,
// each with the reason that a failure prints. Test files are free to import what
// they like. A package that the table does not know fails too: putting it on a
// floor is the first decision about it.
//
// It parses the files itself. A version that asked the go command would be
// answered from the test cache after the tree had changed.
package layers
