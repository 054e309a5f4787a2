package blob

// Codes of the faults that this package makes.
const (
	CodeBadCID     = "BAD_CID"     // Invalid: not the form of a CID that is taken here
	CodeBadProfile = "BAD_PROFILE" // Invalid: chunk size or links out of bounds

	CodeCorrupt    = "BLOB_CORRUPT" // Corrupt: stored bytes are lost or changed
	CodeUnknownCID = "UNKNOWN_CID"  // NotFound: no file with this root is here
	CodeBadRange   = "BAD_RANGE"    // Invalid: the range does not begin in the file, or is too long

	CodeUnknownUpload = "UNKNOWN_UPLOAD"   // NotFound: resume the upload, or send the file in a new one from its begin
	CodeResuming      = "UPLOAD_RESUMING"  // Transient: what is here of it is being read back after a restart
	CodeBadUploadID   = "BAD_UPLOAD_ID"    // Invalid
	CodeUploadExists  = "UPLOAD_EXISTS"    // Conflict: the id is in use for another upload
	CodeBadOffset     = "BAD_OFFSET"       // Invalid: a gap or an overlap; the upload goes on
	CodeTooLarge      = "FILE_TOO_LARGE"   // Invalid: more than StoreConfig.MaxFileSize
	CodeTooMany       = "TOO_MANY_UPLOADS" // Transient: as many as StoreConfig.MaxUploads are open
	CodeDiskFull      = "DISK_FULL"        // Transient: less than StoreConfig.DiskReserve is free

	CodeSizeMismatch   = "SIZE_MISMATCH"   // Invalid: the bytes received are not of the size named
	CodeDigestMismatch = "DIGEST_MISMATCH" // Invalid: nor have they the SHA-256 named
	CodeCIDMismatch    = "CID_MISMATCH"    // Invalid: nor, in the profile of the upload, the CID named

	CodeNoCopy = "NO_COPY" // NotFound: no source had the file

	CodeForeign = "FILES_FOREIGN" // Conflict: the store belongs to another archive

	CodeNotCached = "NOT_CACHED" // Invalid, 412: only-if-cached, and nothing is here for the caller

	CodeURLSignature = "URL_SIGNATURE" // Denied: a signed URL that nobody trusted has signed
	CodeURLExpired   = "URL_EXPIRED"   // Denied: a signed URL whose time is over

	CodeClosed = "STORE_CLOSED" // Transient: the store is shutting down
)
