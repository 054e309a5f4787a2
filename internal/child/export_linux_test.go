package child

// IsGo and GoName are isGo and goName.
var (
	IsGo   = isGo
	GoName = goName
)
