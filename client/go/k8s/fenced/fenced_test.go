package fenced

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	ringfence "ringfence.io/client/go"
)

func TestAConnectionIsAWriteWhateverItsMethod(t *testing.T) {
	for _, path := range []string{
		"/api/v1/namespaces/a/pods/b/exec?command=rm",
		"/api/v1/namespaces/a/pods/b/attach",
		"/api/v1/namespaces/a/pods/b/portforward?ports=80",
		"/api/v1/namespaces/a/pods/b:80/proxy/delete/all",
		"/api/v1/namespaces/a/services/https:b:web/proxy/",
		"/api/v1/nodes/b/proxy/run",
		"/k8s/clusters/c-1/api/v1/namespaces/a/pods/b/exec",
	} {
		for _, method := range []string{"GET", "POST"} {
			if !isWrite(httptest.NewRequest(method, path, nil)) {
				t.Error(method, path)
			}
		}
	}
	upgraded := httptest.NewRequest("GET", "/somewhere/else", nil)
	upgraded.Header.Set("Upgrade", "websocket")
	if !isWrite(upgraded) {
		t.Error("an upgrade")
	}
}

func TestReadsStayReadsAlsoOfWhatIsCalledLikeAConnection(t *testing.T) {
	for _, path := range []string{
		"/api/v1/namespaces/a/pods/b",
		"/api/v1/namespaces/a/pods/b/log",
		"/api/v1/namespaces/a/configmaps/proxy",
		"/api/v1/namespaces/exec/pods/exec",
		"/api/v1/namespaces/exec",
		"/apis/apps/v1/namespaces/a/deployments/exec/status",
		"/api/v1/nodes/proxy",
		"/version",
	} {
		if isWrite(httptest.NewRequest("GET", path, nil)) {
			t.Error("GET", path)
		}
		if !isWrite(httptest.NewRequest("PATCH", path, nil)) {
			t.Error("PATCH", path)
		}
	}
	for path, write := range map[string]bool{
		"/apis/authentication.k8s.io/v1/selfsubjectreviews":                    false,
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":               false,
		"/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews": false,
		"/apis/example.org/v1/namespaces/a/reviews":                            true,
		"/api/v1/namespaces/a/serviceaccounts/b/token":                         true,
	} {
		if isWrite(httptest.NewRequest("POST", path, nil)) != write {
			t.Error("POST", path)
		}
	}
}

type noTerm struct{}

func (noTerm) Fence() (ringfence.Fence, error) { return ringfence.Fence{}, ringfence.ErrLost }

func (noTerm) ReportStale() {}

func TestWithoutATermReadsPassAndWritesAreNotSent(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		asked = append(asked, request.Method)
	}))
	defer server.Close()
	plain := &rest.Config{Host: server.URL}
	client, err := rest.HTTPClientFor(Wrap(plain, noTerm{}))
	if err != nil {
		t.Fatal(err)
	}
	if plain.WrapTransport != nil {
		t.Error("the given configuration was changed")
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		request, _ := http.NewRequest(method, server.URL+"/api/v1/namespaces/a/configmaps/b", strings.NewReader("{}"))
		response, err := client.Do(request)
		var unsent *Unsent
		if written := method != "GET"; written != errors.As(err, &unsent) || written != errors.Is(err, ringfence.ErrLost) {
			t.Error(method, err)
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}
	if len(asked) != 1 || asked[0] != "GET" {
		t.Error(asked)
	}
}
