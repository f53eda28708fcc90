// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

const extender = `extenders:
  - urlPrefix: http://` + address + `/v1/extender
    filterVerb: filter
    prioritizeVerb: prioritize
    bindVerb: bind
    preemptVerb: preempt
    weight: 150
    nodeCacheCapable: true
    httpTimeout: 5s
    managedResources: [{name: nvidia.com/gpu, ignoredByScheduler: false}]
`

func schedulerConfig(qps int, extenders string) string {
	return fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: %d, burst: %d}
percentageOfNodesToScore: 100
%s`, qps, 2*qps, extenders)
}

// through lets the real kube-scheduler place the same pods without and with the extender: with its default
// rate of requests, and with a rate that does not delay it.
func (b *bench) through(ctx context.Context) error {
	cmd, err := b.insideCommand(ctx)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for i, run := range []struct {
		what      string
		qps       int
		extenders string
	}{
		{"kube-scheduler alone, 50 requests/s", 50, ""}, {"with the extender, 50 requests/s", 50, extender},
		{"kube-scheduler alone, 5,000 requests/s", 5000, ""}, {"with the extender, 5,000 requests/s", 5000, extender},
	} {
		if err := b.place(ctx, fmt.Sprintf("run%d", i), run.what, schedulerConfig(run.qps, run.extenders)); err != nil {
			return err
		}
	}
	input.Close()
	return cmd.Wait()
}

// place makes pods while no scheduler runs, and measures the time from the first to the last binding.
func (b *bench) place(ctx context.Context, prefix, what, config string) error {
	if err := b.createPods(ctx, prefix, b.pods); err != nil {
		return err
	}
	watch, err := b.watchBindings(ctx)
	if err != nil {
		return err
	}
	// kube-scheduler was stopped; it starts with this configuration.
	if err := b.cluster.ConfigureScheduler(ctx, config); err != nil {
		return err
	}
	var first, last time.Time
	for count := 0; count < b.pods; count++ {
		select {
		case last = <-watch:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Minute):
			return fmt.Errorf("%s: only %d of %d pods are bound", what, count, b.pods)
		}
		if count == 0 {
			first = last
		}
	}
	fmt.Printf("\n%s: %.0f pods/s\n", what, float64(b.pods-1)/last.Sub(first).Seconds())
	text, err := b.cluster.Exec(ctx, 0, b.cluster.Parts.Kubectl, "get", "--raw", "/metrics",
		"--kubeconfig="+b.inside, "--server=https://127.0.0.1:10259", "--insecure-skip-tls-verify")
	if err != nil {
		return err
	}
	report("kube-scheduler", text, []metric{
		{"scheduler_scheduling_attempt_duration_seconds", `result="scheduled"`, "a pod, from the queue to bound"},
		{"scheduler_scheduling_algorithm_duration_seconds", "", "of it choosing a node, extender included"},
		{"scheduler_framework_extension_point_duration_seconds", `extension_point="PreFilter"`, "  PreFilter"},
		{"scheduler_framework_extension_point_duration_seconds", `extension_point="Filter"`, "  Filter, of sampled nodes"},
		{"scheduler_framework_extension_point_duration_seconds", `extension_point="PreScore"`, "  PreScore"},
		{"scheduler_framework_extension_point_duration_seconds", `extension_point="Score"`, "  Score"},
		{"scheduler_framework_extension_point_duration_seconds", `extension_point="Bind"`, "  Bind, by kube-scheduler itself"},
		{"rest_client_rate_limiter_duration_seconds", `verb="POST"`, "a POST waits for its turn"},
		{"rest_client_request_duration_seconds", `verb="POST"`, "a POST to the API server"},
	})
	if err := b.cluster.Stop(ctx, "kube-scheduler", 0); err != nil {
		return err
	}
	return b.deletePods(ctx, prefix)
}

// watchBindings sends the time at which each pod gets a node.
func (b *bench) watchBindings(ctx context.Context) (<-chan time.Time, error) {
	answer, err := b.request(ctx, "GET", "/api/v1/pods?limit=1", "", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, "GET", b.cluster.URL()+
		"/api/v1/namespaces/"+namespace+"/pods?watch=1&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		return nil, err
	}
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	bound := make(chan time.Time, b.pods)
	go func() {
		defer response.Body.Close()
		seen := map[string]bool{}
		decoder := json.NewDecoder(response.Body)
		for len(seen) < b.pods {
			var event struct {
				Object struct {
					Metadata struct{ Name string }
					Spec     struct{ NodeName string }
				}
			}
			if err := decoder.Decode(&event); err != nil {
				return
			}
			name := event.Object.Metadata.Name
			if event.Object.Spec.NodeName != "" && !seen[name] {
				seen[name] = true
				bound <- time.Now()
			}
		}
	}()
	return bound, nil
}

func (b *bench) deletePods(ctx context.Context, prefix string) error {
	return each(ctx, "pods deleted", b.pods, func(p int) error {
		_, err := b.request(ctx, "DELETE", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s-%05d", namespace, prefix, p),
			"application/json", []byte(`{"gracePeriodSeconds":0}`))
		return err
	})
}

// metric is a histogram, the label of the samples to read, and a description of their meaning.
type metric struct{ name, label, what string }

// report prints means, because buckets are too coarse for quantiles.
func report(of, text string, metrics []metric) {
	fmt.Printf("  %-44s %10s %12s\n", of, "times", "mean, ms")
	for _, m := range metrics {
		var sum, count float64
		for line := range strings.Lines(text) {
			name, value, found := strings.Cut(strings.TrimSpace(line), " ")
			if !found || !strings.Contains(line, m.label) {
				continue
			}
			var number float64
			fmt.Sscan(value, &number)
			switch base, _, _ := strings.Cut(name, "{"); base {
			case m.name + "_sum":
				sum += number
			case m.name + "_count":
				count += number
			}
		}
		if count > 0 {
			fmt.Printf("  %-44s %10.0f %12.3f\n", m.what, count, 1000*sum/count)
		}
	}
}
