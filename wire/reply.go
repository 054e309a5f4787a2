package wire

// looseReply is a Reply as a peer that knows only the original contract may
// write it.
type looseReply struct {
	Reply
	Records []looseRecord `json:"records"`
}

// looseRecord is a record in the form of its minimal Put, under a name of its own.
type looseRecord struct {
	Record
	ID   RawJSON    `json:"id"`
	Body RawJSON    `json:"body"`
	File *looseFile `json:"file"`
}

type looseFile struct {
	File
	ID RawJSON `json:"id"`
}

// DecodeReply reads a Reply, strictly as Decode does. Where that fails it also
// takes the records of a peer that knows only the original contract and answers
// with what was put there: a body that is no string stands for its exact text, as
// in a minimal Put, and an id that is no RecordID is none.
//
// DecodeReply does not check the records.
func DecodeReply(data []byte) (Reply, error) {
	if reply, ok := plainReply(data); ok {
		return reply, nil
	}
	reply, err := Decode[Reply](data)
	if err == nil {
		return reply, nil
	}
	loose, looseErr := Decode[looseReply](data)
	if looseErr != nil {
		return Reply{}, err
	}
	reply = loose.Reply
	reply.Records = make([]Record, len(loose.Records))
	for i, in := range loose.Records {
		r := in.Record
		if r.Body, looseErr = minimalBody(in.Body); looseErr != nil {
			return Reply{}, err
		}
		r.ID = looseID(in.ID)
		if in.File != nil {
			r.File = new(File)
			*r.File = in.File.File
			r.File.ID = looseID(in.File.ID)
		}
		reply.Records[i] = r
	}
	return reply, nil
}

// looseID is the id that a text stands for, or none.
func looseID(text RawJSON) RecordID {
	id, err := Decode[RecordID](text)
	if err != nil {
		return RecordID{}
	}
	return id
}
