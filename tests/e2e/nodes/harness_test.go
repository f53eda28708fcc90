// SPDX-License-Identifier: Apache-2.0

// Package nodes holds the end-to-end tests that need several nodes with different GPUs. As in the quickstart, n1
// has A100, n2 has T4 and n3 has H200. Addresses of Services work in this cluster, and
// bed.Shared.ConfigureScheduler changes the configuration of kube-scheduler.
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
		// A missing node becomes NotReady after 15 s instead of 50 s. A Deployment that is scaled many times does
		// not wait for the usual limit of twenty requests a second.
		Flags: map[string][]string{"kube-controller-manager": {
			"--node-monitor-grace-period=15s", "--kube-api-qps=200", "--kube-api-burst=400"}},
		KubeletConfig: map[string]any{
			"nodeLeaseDurationSeconds": 8,
			"crashLoopBackOff":         map[string]string{"maxContainerRestartPeriod": "1s"},
		},
	}, all, func() error { return bed.InstallChart() }))
}
