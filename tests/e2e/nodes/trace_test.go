// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"golang.org/x/sys/unix"
	"tessera.dev/tests/e2e/bed"
)

// listenInCluster opens a port of the control plane, which pods and nodes reach.
func listenInCluster(t *testing.T) net.Listener {
	t.Helper()
	type opened struct {
		listener net.Listener
		err      error
	}
	result := make(chan opened)
	// A socket stays in the network namespace of the thread that opens it. The thread ends with this function,
	// because it is never unlocked.
	go func() {
		runtime.LockOSThread()
		space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", bed.Shared.Head.PID))
		if err != nil {
			result <- opened{err: err}
			return
		}
		defer space.Close()
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- opened{err: err}
			return
		}
		listener, err := net.Listen("tcp", "10.250.0.1:0")
		result <- opened{listener, err}
	}()
	got := <-result
	if got.err != nil {
		t.Fatal(got.err)
	}
	t.Cleanup(func() { got.listener.Close() })
	return got.listener
}

// collector reads requests as the OpenTelemetry collector does, by its own decoder.
type collector struct {
	mutex  sync.Mutex
	spans  []ptrace.Span
	faults []string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := ptraceotlp.NewExportRequest()
	if err == nil {
		err = request.UnmarshalJSON(body)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err != nil || r.URL.Path != "/v1/traces" {
		c.faults = append(c.faults, fmt.Sprintf("%s: %v: %.300s", r.URL.Path, err, body))
	}
	for _, resource := range request.Traces().ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				c.spans = append(c.spans, span)
			}
		}
	}
}

// trace returns the spans of a pod by name.
func (c *collector) trace(uid string) map[string]ptrace.Span {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	spans := map[string]ptrace.Span{}
	for _, span := range c.spans {
		if span.TraceID().String() == strings.ReplaceAll(uid, "-", "") {
			spans[span.Name()] = span
		}
	}
	return spans
}

func TestACollectorGetsTheTraceOfAPodsStart(t *testing.T) {
	bed.WireScheduler(t)
	listener := listenInCluster(t)
	spans := &collector{}
	server := &http.Server{Handler: spans}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	flag := "{--otlp-endpoint=http://" + listener.Addr().String() + "}"
	t.Cleanup(func() { bed.UpgradeChart(t) })
	bed.UpgradeChart(t, "--set", "agent.extraArgs="+flag, "--set", "scheduler.extraArgs="+flag)
	// Helm does not wait for all agents, and the API server may use its connection to a webhook that is ending.
	const args = `jsonpath={range .items[*]}{.spec.containers[*].args}{"\n"}{end}`
	bed.Eventually(t, bed.PodTimeout, "only agents and schedulers that send spans", func() bool {
		pods := bed.Kubectl(t, "-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/name in (tessera-agent,tessera-scheduler)", "-o", args)
		return pods != "" && strings.Count(pods, "--otlp-endpoint") == len(strings.Split(strings.TrimSpace(pods), "\n"))
	})

	pod := bed.Single("traced", 1).Create(t)
	bed.WaitPhase(t, pod, "Succeeded")
	uid := bed.Kubectl(t, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the pod has the spans", slices.Sorted(maps.Keys(spans.trace(uid))))
		}
	})
	want := []string{"allocate", "bind", "filter", "grant", "pod", "webhook"}
	bed.Eventually(t, bed.PodTimeout, "the spans "+strings.Join(want, ", "), func() bool {
		return slices.Equal(slices.Sorted(maps.Keys(spans.trace(uid))), want)
	})
	spanOf := spans.trace(uid)
	for name, span := range spanOf {
		if name != "pod" && span.ParentSpanID() != spanOf["pod"].SpanID() {
			t.Errorf("%s has parent %s, not the span of the pod", name, span.ParentSpanID())
		}
		if span.EndTimestamp() < span.StartTimestamp() || span.Status().Code() == ptrace.StatusCodeError {
			t.Errorf("%s: from %v to %v, %s", name, span.StartTimestamp(), span.EndTimestamp(), span.Status().Message())
		}
	}
	// The order in which the steps begin.
	for _, pair := range [][2]string{{"webhook", "filter"}, {"filter", "bind"}, {"bind", "allocate"}, {"allocate", "grant"}} {
		if spanOf[pair[0]].StartTimestamp() > spanOf[pair[1]].StartTimestamp() {
			t.Errorf("%s begins after %s", pair[0], pair[1])
		}
	}
	gpus, _ := spanOf["grant"].Attributes().Get("tessera.gpus")
	if chosen := assigned(t, pod)["main"][0].GPU; gpus.AsString() != chosen {
		t.Errorf("the grant has %s, the assignment %s", gpus.AsString(), chosen)
	}
	if node, _ := spanOf["bind"].Attributes().Get("k8s.node.name"); node == (pcommon.Value{}) || node.AsString() == "" {
		t.Error("the binding names no node")
	}
	for _, fault := range spans.faults {
		t.Error(fault)
	}
}
