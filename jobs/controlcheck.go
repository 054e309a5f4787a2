package jobs

import "github.com/verae/archive/wire"

// controlOf checks a submission of a control record. It has no job, and its bytes
// stay for archives that come later.
func (c *checker) controlOf(s *submission, key []byte) error {
	id := s.ref().key()
	if err := c.there(rowKey(rowControl, id), "the record of the submission goes to every archive", key); err != nil {
		return err
	}
	if err := c.target(s, key); err != nil {
		return err
	}
	if s.idle() {
		return nil
	}
	c.report.Unfinished++
	return c.there(rowKey(rowPending, id), "the submission needs work", key)
}

// target checks that the bytes of a control record are there, and how what it is
// about stands.
func (c *checker) target(s *submission, of []byte) error {
	key := rowKey(rowOutbox, s.ref().key(), ordinal(0))
	row, ok, err := getRow(c.r, key)
	if err != nil {
		return err
	}
	if !ok {
		return c.there(key, "the record of the submission goes to archives that come later", of)
	}
	payload, err := openRow(key, row)
	if err != nil {
		return nil // noted when the outbox is walked
	}
	put, err := wire.DecodePut(payload)
	if err != nil {
		return nil // likewise
	}
	control, err := wire.ParseControl(put.Record.Kind, put.Record.Body)
	if err != nil {
		c.note("row %x is no control record: %w", key, err)
		return nil
	}
	return c.there(steeringKey(s.Tenant, s.Digest, control.RecordID), "a decision was made of it", of)
}

func (c *checker) control(key, _ []byte) error {
	return c.there(rowKey(rowSubmission, key[1:]), "its record goes to every archive", key)
}

// steering checks how a target stands, and that the submissions are there which
// made it so.
func (c *checker) steering(key, row []byte) error {
	v, err := decodeRow[steering](key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	if err := v.State.Check(); err != nil {
		c.note("row %x: %w", key, err)
	}
	if (v.Retain != "") != (v.State.Until() != "") {
		c.note("row %x: retained until %q by submission %q", key, v.State.Until(), v.Retain)
	}
	tag, why := key[1:17], "a decision is of it"
	if v.Retain != "" {
		if err := c.there(rowKey(rowSubmission, tag, uuidBytes(string(v.Retain))), why, key); err != nil {
			return err
		}
	}
	for _, id := range v.Holds {
		if err := c.there(rowKey(rowSubmission, tag, uuidBytes(string(id))), why, key); err != nil {
			return err
		}
	}
	return nil
}
