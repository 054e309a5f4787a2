// Package splitter takes a request to timestamp something apart: the SHA-256
// goes to the chain, everything else to archives, private metadata only as
// ciphertext.
//
// [ReadJSON] and [ReadMultipart] read and check a whole request. While they
// read, the bytes of files pass once through a [blob.Hasher] and on to an
// [Upload], which is still open, that is uncommitted, when they return. What
// comes back is a [Request]: either every part of what was sent, or an error
// and no upload left behind. [Split] then makes the records of it.
//
// Promises, for JSON and multipart alike:
//   - Nothing is decided before the end of the request has arrived. A body that
//     was cut anywhere is refused, and no part of one is skipped in silence.
//   - The parts of a multipart body may come in any order.
//   - What is hashed is what was on the wire; stored bodies are verbatim.
//   - Memory does not grow with the files. It holds the metadata and the
//     attachments, whose sizes [Limits] bounds; a JSON body is held whole.
//   - Every refusal names the field and the fix, is of kind fault.Invalid and
//     has one of the codes of this package. Errors of an Upload are passed on
//     as they are.
//
// A multipart body is read with mime/multipart's NextRawPart, fed by a reader
// of our own that follows the body's structure line by line. The form reading
// functions of net/http are not used: they lose parts without an error.
package splitter
