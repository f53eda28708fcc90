// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// ErrNotFound means that the API server has no such object.
var ErrNotFound = errors.New("not found")

// administrator is used for frequent requests, because each kubectl costs a process and 0.3 s of a core.
var administrator = sync.OnceValues(func() (*http.Client, error) {
	client, err := Shared.HTTPClient()
	if err != nil {
		return nil, err
	}
	client.Timeout = time.Minute
	client.Transport.(*http.Transport).DisableKeepAlives = false
	return client, nil
})

// Call sends a request to the API server as administrator. The body is sent as JSON, or is nil. The answer is
// decoded into what `into` points to; a string takes the answer's text, and nil ignores it. Status 404 gives
// ErrNotFound.
func Call(method, path string, body, into any) error {
	client, err := administrator()
	if err != nil {
		return err
	}
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, Shared.URL()+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return readAnswer(response, method+" "+path, into)
}

func readAnswer(response *http.Response, what string, into any) error {
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	if response.StatusCode > 299 {
		return &answerError{response.StatusCode, fmt.Sprintf("%s: %s: %s", what, response.Status, text)}
	}
	switch into := into.(type) {
	case nil:
	case *string:
		*into = string(text)
	default:
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// answerError is an answer of the API server with an error.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string { return e.text }

// mayPass returns whether the same request may succeed later: the API server does not answer, is busy, or waits for
// etcd, which cannot answer in time if the machine stands still.
func mayPass(err error) bool {
	var answer *answerError
	if errors.As(err, &answer) {
		return answer.status >= 500 || answer.status == http.StatusTooManyRequests
	}
	return err != nil && !errors.Is(err, ErrNotFound)
}

// read reads a path of the API server, and tries again for a while after an error that may pass.
func read(path string, into any) (err error) {
	Within(30*time.Second, func() bool {
		err = Call(http.MethodGet, path, nil, into)
		return !mayPass(err)
	})
	return err
}

// Get reads a path of the API server; an error fails the test.
func Get(t *testing.T, path string, into any) {
	t.Helper()
	if err := read(path, into); err != nil {
		t.Fatal(err)
	}
}

// NodeObject has the fields of a node that tests read.
type NodeObject struct {
	Metadata struct {
		Labels, Annotations map[string]string
	}
	Spec struct {
		Taints []Taint
	}
	Status struct {
		Allocatable map[string]string
		Conditions  []Condition
	}
}

// Taint of a node.
type Taint struct{ Key, Effect string }

// Condition of a node or a pod.
type Condition struct{ Type, Status, Reason, Message string }

// PodObject has the fields of a pod that tests read.
type PodObject struct {
	Metadata struct {
		Name, UID           string
		Annotations, Labels map[string]string
	}
	Spec struct {
		NodeName       string
		Containers     []struct{ Name string }
		InitContainers []struct{ Name string }
	}
	Status struct {
		Phase, PodIP, Reason, Message string
		NominatedNodeName             string
		Conditions                    []Condition
		InitContainerStatuses         []ContainerStatus
		ContainerStatuses             []ContainerStatus
	}
}

// ContainerStatus has under State one of "waiting", "running" and "terminated".
type ContainerStatus struct {
	Name, ContainerID string
	RestartCount      int
	State             map[string]map[string]any
}

// Node reads a node.
func Node(name string) (node NodeObject, err error) {
	err = read("/api/v1/nodes/"+name, &node)
	return node, err
}

const podsPath = "/api/v1/namespaces/default/pods"

// ReadPod reads a pod of the namespace "default".
func ReadPod(t *testing.T, name string) (pod PodObject) {
	t.Helper()
	Get(t, podsPath+"/"+name, &pod)
	return pod
}

// ConditionOf returns the condition of this type. All fields are empty if there is no such condition.
func ConditionOf(all []Condition, kind string) Condition {
	for _, condition := range all {
		if condition.Type == kind {
			return condition
		}
	}
	return Condition{}
}
