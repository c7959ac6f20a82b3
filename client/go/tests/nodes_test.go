package tests

import (
	"testing"

	"ringfence.io/client/go/internal/testnode"
)

type cluster = testnode.Cluster

func startCluster() (*cluster, error) { return testnode.Start(1) }

func ringfenceBinary(t *testing.T) string {
	t.Helper()
	binary, err := testnode.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}
