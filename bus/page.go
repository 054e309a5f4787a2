package bus

import (
	"bytes"
	"crypto/rand"
	"fmt"

	"github.com/verae/archive/wire"
)

// answerLen is how many characters of 5 random bits tell the answers of a process to
// one query apart.
const answerLen = 8

// replyHeadroom is kept free in a reply for its headers, in bytes: max_payload
// counts them.
const replyHeadroom = 1 << 10

// pages encodes a reply as messages of at most limit bytes, in order. The records
// keep their order; each is in one page. It fails only when a single record does
// not fit, which wire.MaxBody and MinPayload rule out.
func pages(reply wire.Reply, limit int64) ([][]byte, error) {
	if reply.Records == nil {
		reply.Records = []wire.Record{}
	}
	reply.Page, reply.Pages = 1, 1
	whole, err := wire.Encode(reply)
	if err != nil {
		return nil, err
	}
	if int64(len(whole)) <= limit {
		return [][]byte{whole}, nil
	}
	reply.Answer = rand.Text()[:answerLen]
	groups, err := group(reply, limit)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(groups))
	for i, records := range groups {
		if i > 0 {
			reply.Lost, reply.Checkpoint = 0, "" // said once
		}
		head, tail, err := envelope(reply, i+1, len(groups))
		if err != nil {
			return nil, err
		}
		out[i] = bytes.Join([][]byte{head, bytes.Join(records, []byte{','}), tail}, nil)
	}
	return out, nil
}

// group encodes the records and fills page after page with them.
func group(reply wire.Reply, limit int64) ([][][]byte, error) {
	most := len(reply.Records) // as many pages at most; their number has no more digits
	head, tail, err := envelope(reply, most, most)
	if err != nil {
		return nil, err
	}
	empty := len(head) + len(tail)
	var groups [][][]byte
	size := 0
	for i := range reply.Records {
		data, err := wire.Encode(&reply.Records[i])
		if err != nil {
			return nil, err
		}
		if int64(empty+len(data)) > limit {
			return nil, fmt.Errorf("bus: record %s takes %d bytes in a reply; the server's max_payload allows %d",
				reply.Records[i].ID, empty+len(data), limit)
		}
		if len(groups) == 0 || int64(size+1+len(data)) > limit {
			groups = append(groups, nil)
			size = empty
		} else {
			size++ // the comma
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], data)
		size += len(data)
	}
	return groups, nil
}

// envelope encodes a page without its records, split where they belong. The
// archive's id, which stands before them, can not contain the mark.
func envelope(reply wire.Reply, page, of int) (head, tail []byte, err error) {
	reply.Records, reply.Page, reply.Pages = []wire.Record{}, page, of
	data, err := wire.Encode(reply)
	if err != nil {
		return nil, nil, err
	}
	const mark = `"records":[`
	at := bytes.Index(data, []byte(mark))
	if at < 0 {
		return nil, nil, fmt.Errorf("bus: no records in an encoded reply")
	}
	at += len(mark)
	return data[:at], data[at:], nil
}
