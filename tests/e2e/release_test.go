// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// startHolder starts a pod that keeps one GPU, and returns the GPU's UUID.
func startHolder(t *testing.T, name string) string {
	t.Helper()
	pod := bed.Single(name, 1, "--hold", "3600").Create(t)
	bed.WaitPhase(t, pod, "Running")
	bed.Eventually(t, bed.PodTimeout, pod+" has computed", func() bool { return strings.Contains(bed.Logs(t, pod), "Test PASSED") })
	return bed.RequirePassed(t, pod, 1)[0]
}

// TestUpgradeFromTheEarlierReleaseAndBack runs pods with a whole GPU and with shares through an upgrade from an earlier
// release and back to it. Each release reads the journal and the limits that the other one wrote.
func TestUpgradeFromTheEarlierReleaseAndBack(t *testing.T) {
	before, now := bed.EarlierRelease(t), bed.ThisRelease
	t.Cleanup(func() { now.UpgradeChart(t) })
	before.UpgradeChart(t)
	held := []string{"whole-through-releases"}
	used := []string{startHolder(t, held[0])}
	pods := createLimitedPods(t)

	check := func(when string) {
		t.Helper()
		pods.checkLimits(t, when)
		bed.Untouched(t, when, held...)
		// A new pod gets none of the GPUs that others hold, and the next release keeps its grant.
		next := "whole-" + strings.ReplaceAll(when, " ", "-")
		gpu := startHolder(t, next)
		if slices.Contains(used, gpu) {
			t.Errorf("%s a new pod has %s, and others hold %v", when, gpu, used)
		}
		used, held = append(used, gpu), append(held, next)
	}
	check("with the earlier release")
	now.UpgradeChart(t)
	check("after the upgrade")
	pods.followLimits(t, "after the upgrade")
	before.UpgradeChart(t)
	check("after the downgrade")
	now.UpgradeChart(t)
	check("after the second upgrade")
	pods.followLimits(t, "after the second upgrade")
	bed.Tessera(t, "status", "--wait", "--timeout=180")
}
