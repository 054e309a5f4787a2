package archive

// AbsentBatch appends to absent, for each digest, whether the archive surely has
// nothing under it, and returns that. Those that it surely has not are counted as
// queries that were met with silence. It allocates nothing if absent has room.
func (n *Node) AbsentBatch(digests [][32]byte, absent []bool) []bool {
	for _, d := range digests {
		absent = append(absent, n.Absent(d))
	}
	return absent
}
