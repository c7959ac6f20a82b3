// Package ringfence is the client of Ringfence, a coordination service: leases with fencing tokens that
// stop stale leaders.
//
// A [Client] is a program's way to a cluster. It opens a [Session], which one keep-alive renews with all
// its leases, and a session acquires a [Lease]:
//
//	client, err := ringfence.Connect(ctx, []string{"10.0.0.1:7420", "10.0.0.2:7420"})
//	lease, err := client.Lock(ctx, "bank/interest", ringfence.SessionOptions{})
//	err = lease.Do(ctx, func(ctx context.Context) error {
//		return write(ctx, lease.Fence()) // ctx ends when the lease is lost
//	})
//	err = lease.Release(ctx)
//
// An [Elector] campaigns again and again, and runs a leader's work.
//
// # What a lease promises
//
// Token: each grant has one, greater than every token granted before it, on any lease. A guard in the
// store (package guard, pgxguard, or the policies for Kubernetes) refuses a write with a smaller one than
// it has seen. Only that keeps a stale write out: between Valid and the arrival of a write any time can
// pass.
//
// Belief: [Lease.Valid] asks a clock at each call that goes on while the machine is suspended:
// CLOCK_BOOTTIME on Linux, the interrupt time on Windows. Elsewhere, macOS and the BSDs among them, such
// a clock cannot be read without cgo; there the monotonic and the wall clock are followed, and what
// passed on either counts, so a suspend is noticed by the wall clock. The window of belief begins before
// the request was sent that extended it, only acknowledged keep-alives extend it, and it ends before
// the cluster can grant the lease to another session, where clocks run true to 1 %.
//
// Loss: it is final. A lease that was reported lost is never valid again; a new one has a new token.
// Belief ends before a release, a transfer or a close leaves.
//
// # Errors
//
// errors.Is tells them apart: the cluster's refusals are [Reason] values ([ErrHeld], [ErrStaleToken], …)
// inside a [*Refusal]; a lease or session that is over is a [*Loss], for which errors.Is(err, [ErrLost])
// holds. [ErrUnavailable] means that a request was surely not done, [ErrOutcomeUnknown] that it may have
// been. A request is repeated under its number, at any node, until its outcome is known or its context is
// done. An acquire that is given up is cancelled at the cluster, in the background, until that is
// answered: no grant is left behind.
//
// # Credentials
//
// [WithTLS] and [WithTokenFile]; a token without TLS is sent in the clear. No session's secret is ever
// printed.
package ringfence

//go:generate go -C tools run ./genproto ../internal/pb
