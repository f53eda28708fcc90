// SPDX-License-Identifier: Apache-2.0

package installs

import (
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// giveHostDriver copies the libraries of the driver on node i, from 1, into the host's folder under another version.
func giveHostDriver(t *testing.T, i int, version string) (remove func()) {
	t.Helper()
	const folder = "usr/lib/$(uname -m)-linux-gnu"
	files := "/" + folder + "/libnvidia-ml.so* /" + folder + "/libcuda.so*"
	bed.OnNode(t, i, "/bin/sh", "-ec", "for name in libnvidia-ml libcuda; do cp "+bed.DriverRoot+"/"+folder+"/$name.so.1 /"+folder+
		"/$name.so."+version+"; ln -s $name.so."+version+" /"+folder+"/$name.so.1; done")
	return func() { bed.OnNode(t, i, "/bin/sh", "-c", "rm -f "+files) }
}

// waitNoProblem waits until "tessera status" finds no problem.
func waitNoProblem(t *testing.T) {
	t.Helper()
	bed.Eventually(t, bed.PodTimeout, "tessera status finds no problem", func() bool {
		_, code := status()
		return code == 0
	})
}

// The host of n1 gets a driver while a driver container has installed another one. Pods still get the GPUs, with the
// driver of the loaded kernel module. The status names both drivers, and its fix works.
func TestANodeWithTwoDriversIsNamedWithTheFix(t *testing.T) {
	removeAtTheEnd(t)
	bed.Tessera(t, append([]string{"install", "--set", "agent.driverRoot=/"}, settings()...)...)
	waitGPUs(t, "n1", "n2", "n3")
	waitNoProblem(t)

	remove := giveHostDriver(t, 1, "470.1.2")
	t.Cleanup(remove)
	bed.WaitStatusSays(t, "DriverConflict: the node has two drivers: the host has 470.1.2 and a driver container ("+bed.DriverRoot+") has ",
		"; a driver container ("+bed.DriverRoot+") is used", "fix: remove the driver of the host or the driver container")
	if text, _ := status(); strings.Contains(text, "n2 ") || strings.Contains(text, "n3 ") {
		t.Errorf("the status names a node that has one driver: %s", text)
	}
	pod := bed.Single("with-two-drivers", bed.NodeGPUs[0].Count)
	pod.NodeSelector = map[string]string{"kubernetes.io/hostname": "n1"}
	bed.WaitPhase(t, pod.Create(t), "Succeeded")
	bed.RequirePassed(t, pod.Name, bed.NodeGPUs[0].Count)

	remove()
	waitNoProblem(t)
}
