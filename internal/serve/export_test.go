package serve

// StopGrace is stopGrace for the tests of exact times.
const StopGrace = stopGrace

// BuildOf is buildOf.
var BuildOf = buildOf

// NewHandler is newHandler: a test has no terminal to write to.
var NewHandler = newHandler
