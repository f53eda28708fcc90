// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// makeDriverImages makes one image of the simulated driver container (simdriver) for each entry of modes. The key is
// the tag. The value is how simdriver behaves in place of NVIDIA's driver container.
func makeDriverImages(out string, modes map[string]string) error {
	args := []string{out}
	for tag, mode := range modes {
		args = append(args, tag+"="+mode)
	}
	if text, err := exec.Command(filepath.Join(Root, "scripts/driver-images"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/driver-images: %w: %s", err, text)
	}
	return nil
}

// LoadDriverImages loads the images of the simulated driver container on all nodes. modes is as in makeDriverImages.
func LoadDriverImages(t *testing.T, modes map[string]string) {
	t.Helper()
	out := t.TempDir()
	if err := makeDriverImages(out, modes); err != nil {
		t.Fatal(err)
	}
	if err := loadArchives(out); err != nil {
		t.Fatal(err)
	}
}

// LeaveOnlyTheBus removes the simulated driver from node i, from 1. One GPU stays on the PCI bus, as on a node that
// never had a driver. When simdriver later removes a driver that it installed, this GPU stays on the bus as well.
func LeaveOnlyTheBus(t *testing.T, i int) {
	t.Helper()
	const device = "/sys/bus/pci/devices/0000:07:00.0"
	OnNode(t, i, "/bin/sh", "-ec", `
		`+Tool("simgpu")+` destroy --root `+DriverRoot+`; rm -rf `+DriverRoot+`
		for root in `+DriverRoot+` /run/nvidia/.bus-without-driver; do
			mkdir -p $root/proc/driver/nvidia $root`+device+`
			echo 0x10de >$root`+device+`/vendor
			echo 0x030200 >$root`+device+`/class
		done`)
}

// RestoreDriver gives node i, from 1, the simulated driver that it had in the beginning.
func RestoreDriver(t *testing.T, i int, gpus GPUs) {
	t.Helper()
	OnNode(t, i, "rm", "-rf", DriverRoot, "/run/nvidia/.bus-without-driver")
	Simgpu(t, i, "create", "--profile", gpus.Profile, "--gpus", fmt.Sprint(gpus.Count), "--device-nodes")
}
