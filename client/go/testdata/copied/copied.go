// Package copied keeps a lease by value: go vet is to refuse it.
package copied

import ringfence "ringfence.io/client/go"

type Worker struct{ Lease ringfence.Lease }

func Start(lease *ringfence.Lease) *Worker { return &Worker{Lease: *lease} }
