// Package serve is what every long-running program of the system shares: the
// logger, the health checks, HTTP servers with all their timeouts, the admin
// listener, the orderly stop and the exit codes.
//
// It knows nothing of archives or jobs. A program builds its parts in the order
// of the data flow and pushes a closer for each on a [Stack]; [Stack.Run] then
// keeps the parts running and stops them in reverse order, so that intake ends
// before what it feeds, and stores close last. Nothing here installs global
// state: the logger, the registry and the checks are values that main passes on.
package serve
