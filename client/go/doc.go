// Package ringfence is the client of Ringfence, a coordination service: leases with fencing tokens.
package ringfence

//go:generate go -C tools run ./genproto ../internal/pb
