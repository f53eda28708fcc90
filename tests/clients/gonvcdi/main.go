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
	// A MIG device on the last GPU.
	MIG struct {
		GPUInstance     int `json:"gpu_instance"`
		ComputeInstance int `json:"compute_instance"`
	} `json:"mig"`
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

// The numbers of capabilities as NVIDIA's MIG user guide lists them: 15 GPU instances of 9 numbers
// for each GPU.
func checkMIG(f facts, device specs.Device) {
	gpu := len(f.UUIDs) - 1
	number := 3 + (gpu*15+f.MIG.GPUInstance)*9
	for _, name := range []string{
		fmt.Sprintf("nvidia%d", gpu),
		fmt.Sprintf("nvidia-caps/nvidia-cap%d", number),
		fmt.Sprintf("nvidia-caps/nvidia-cap%d", number+1+f.MIG.ComputeInstance),
	} {
		check(hasNode(device.ContainerEdits.DeviceNodes, name), "MIG device has no %s: %v", name,
			device.ContainerEdits.DeviceNodes)
	}
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
	mig, found := names[fmt.Sprintf("%d:0", len(f.UUIDs)-1)]
	check(found, "no CDI device of the MIG instance")
	checkMIG(f, mig)
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
		if path.Base(mount.ContainerPath) == "socket" {
			check(mount.ContainerPath == "/run/nvidia-persistenced/socket", "socket at %s", mount.ContainerPath)
		}
	}
	// By the socket, libraries in the container find the node.
	for _, name := range []string{"libcuda.so." + f.Driver, "libnvidia-ml.so." + f.Driver, "nvidia-smi", "socket"} {
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
