package leaseapi

import (
	"context"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock ends terms before a release leaves. client-go sends its release first and cancels the work's
// context later, so without it the work could go on while the next holder begins.
func (e *Election) Lock(lock resourcelock.Interface) resourcelock.Interface {
	return releasing{lock, e}
}

type releasing struct {
	resourcelock.Interface
	election *Election
}

// Update implements resourcelock.Interface. An empty holder is how client-go releases.
func (l releasing) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		l.election.release()
	}
	return l.Interface.Update(ctx, record)
}
