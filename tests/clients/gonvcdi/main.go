// SPDX-License-Identifier: Apache-2.0

// Program gonvcdi makes a CDI specification of the simulated driver root with NVIDIA's container
// toolkit, unmodified, as "nvidia-ctk cdi generate" does. Run by run.py, as root: the toolkit leaves
// out device files that are not devices.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path"
	"strings"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"tags.cncf.io/container-device-interface/specs-go"
)

type facts struct {
	UUIDs      []string `json:"uuids"`
	Driver     string   `json:"driver"`
	DriverRoot string   `json:"driver_root"`
	DevRoot    string   `json:"dev_root"`
}

func must(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %s", what, err)
	}
}

func check(good bool, format string, arguments ...any) {
	if !good {
		log.Fatalf(format, arguments...)
	}
}

func hasNode(nodes []*specs.DeviceNode, name string) bool {
	for _, node := range nodes {
		if node.Path == "/dev/"+name {
			return true
		}
	}
	return false
}

func checkDevices(f facts, library nvcdi.Interface) {
	devices, err := library.GetAllDeviceSpecs()
	must("GetAllDeviceSpecs", err)
	names := map[string]specs.Device{}
	for _, device := range devices {
		names[device.Name] = device
	}
	for index, uuid := range f.UUIDs {
		wanted := fmt.Sprintf("nvidia%d", index)
		for _, name := range []string{fmt.Sprint(index), uuid} {
			device, found := names[name]
			check(found, "no CDI device %q", name)
			nodes := device.ContainerEdits.DeviceNodes
			check(len(nodes) == 1 && hasNode(nodes, wanted), "device %s has %v", name, nodes)
			check(nodes[0].HostPath == path.Join(f.DevRoot, "dev", wanted), "host path %s", nodes[0].HostPath)
		}
	}
}

func checkCommon(f facts, library nvcdi.Interface) {
	edits, err := library.GetCommonEdits()
	must("GetCommonEdits", err)
	for _, name := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} {
		check(hasNode(edits.DeviceNodes, name), "no %s in %v", name, edits.DeviceNodes)
	}
	mounts := map[string]bool{}
	for _, mount := range edits.Mounts {
		check(strings.HasPrefix(mount.HostPath, f.DriverRoot), "mount of %s", mount.HostPath)
		mounts[path.Base(mount.ContainerPath)] = true
	}
	for _, name := range []string{"libcuda.so." + f.Driver, "libnvidia-ml.so." + f.Driver, "nvidia-smi"} {
		check(mounts[name], "%s is not mounted: %v", name, mounts)
	}
}

func main() {
	var f facts
	if err := json.Unmarshal([]byte(os.Getenv("CLIENT_FACTS")), &f); err != nil {
		log.Fatal(err)
	}
	byIndex, err := nvcdi.NewDeviceNamer(nvcdi.DeviceNameStrategyIndex)
	must("NewDeviceNamer", err)
	byUUID, err := nvcdi.NewDeviceNamer(nvcdi.DeviceNameStrategyUUID)
	must("NewDeviceNamer", err)
	library, err := nvcdi.New(nvcdi.WithDriverRoot(f.DriverRoot), nvcdi.WithDevRoot(f.DevRoot),
		nvcdi.WithMode(nvcdi.ModeNvml), nvcdi.WithDeviceNamers(byIndex, byUUID))
	must("nvcdi.New", err)
	checkDevices(f, library)
	checkCommon(f, library)
	fmt.Printf("nvcdi: %d GPUs, all answers right\n", len(f.UUIDs))
}
