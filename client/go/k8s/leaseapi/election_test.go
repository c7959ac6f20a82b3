package leaseapi

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A holder that deletes its Lease gives it back: the next one is granted at once. So belief ends before
// that leaves, as before a release.
func TestATermEndsBeforeItsLeaseIsDeleted(t *testing.T) {
	election, err := New("shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	term := election.Term()
	var atDelete error
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if request.Method == http.MethodDelete {
			_, atDelete = term.Fence()
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
			return
		}
		w.Header().Set(fenceHeader, "k8s/shop/web#7")
		w.Header().Set(validForHeader, "22000")
		_, _ = io.WriteString(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"web"}}`)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(election.Wrap(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	leases := client.CoordinationV1().Leases("shop")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "1"}}
	if _, err = leases.Update(context.Background(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err = term.Fence(); err != nil {
		t.Fatal(err)
	}
	if err = leases.Delete(context.Background(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err = term.Fence(); err == nil || atDelete == nil {
		t.Error("the term is believed in, while its lease is deleted and after that:", atDelete, err)
	}
}
