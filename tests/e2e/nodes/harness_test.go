// SPDX-License-Identifier: Apache-2.0

// Package nodes holds the end-to-end tests that take several nodes with different GPUs: n1 with A100,
// n2 with T4, n3 with H200, as the quickstart has them. Addresses of services work, and kube-scheduler
// takes another configuration by bed.Shared.ConfigureScheduler.
package nodes

import (
	"context"
	"fmt"
	"os"
	"testing"

	cluster "tessera.dev/tests/cluster"
	"tessera.dev/tests/e2e/bed"
)

var (
	ctx = context.Background()
	all []bed.GPUs // of n1, n2, …
)

// product is the label by which a pod selects a GPU model.
const product = "nvidia.com/gpu.product"

func TestMain(m *testing.M) {
	var err error
	if all, err = bed.DifferentNodes(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(bed.Main(m, cluster.Options{
		Name: "e2e-nodes", Services: true,
		// A node that is gone is missed after 15 s, not 50; and a Deployment that is scaled again and again does
		// not wait for the client's twenty requests a second.
		Flags: map[string][]string{"kube-controller-manager": {
			"--node-monitor-grace-period=15s", "--kube-api-qps=200", "--kube-api-burst=400"}},
		KubeletConfig: map[string]any{
			"nodeLeaseDurationSeconds": 8,
			"crashLoopBackOff":         map[string]string{"maxContainerRestartPeriod": "1s"},
		},
	}, all))
}
