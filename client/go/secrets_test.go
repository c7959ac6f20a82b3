package ringfence

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestNoSecretIsPrinted(t *testing.T) {
	own := new(secret)
	for i := range own {
		own[i] = 0xab
	}
	token, err := newBearer("very-secret", "", false)
	if err != nil {
		t.Fatal(err)
	}
	client := &Client{t: &transport{bearer: token}}
	session := &Session{id: 7, secret: own, client: client}
	lease := &Lease{session: session, name: "a/b", token: 42}
	type wrapped struct {
		s *Session
		c *Client
		l any
	}
	copied := reflect.ValueOf(lease).Elem().Interface() // Past go vet.
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		for _, value := range []any{session, lease, client, token, copied, &Elector{client: client, session: session}, &closing{session: session}, wrapped{session, client, copied}, &wrapped{s: session}} {
			text := strings.ToLower(fmt.Sprintf(verb, value))
			for _, shown := range []string{"very-secret", "abab", "171", "0xab, 0xab", "«"} {
				if strings.Contains(text, shown) {
					t.Errorf("%s of %T: %s", verb, value, text)
				}
			}
		}
	}
	if text := fmt.Sprint(session, lease, client); text != "ringfence.Session(7) ringfence.Lease(a/b#42) ringfence.Client" {
		t.Error(text)
	}
	for _, value := range []any{session, lease, client} {
		if text, err := json.Marshal(value); err != nil || string(text) != "{}" {
			t.Errorf("%s %v", text, err)
		}
	}
}
