// SPDX-License-Identifier: Apache-2.0

// Program gonvlib asks the simulated driver through go-nvlib, unmodified: the PCI tree by nvpci, as
// GPU feature discovery and the GPU operator read it, and NVML by its device package, as the device
// plugin does. Run by run.py.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvlib/pkg/nvlib/info"
	"github.com/NVIDIA/go-nvlib/pkg/nvpci"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type facts struct {
	UUIDs      []string `json:"uuids"`
	Name       string   `json:"name"`
	DriverRoot string   `json:"driver_root"`
}

const (
	capabilityExpress = 0x10
	capabilityVendor  = 0x09
	bar1Bytes         = 128 << 30
)

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

func checkPCI(f facts) []*nvpci.NvidiaPCIDevice {
	tree := nvpci.New(nvpci.WithPCIDevicesRoot(filepath.Join(f.DriverRoot, "sys/bus/pci/devices")))
	gpus, err := tree.GetGPUs()
	must("GetGPUs", err)
	check(len(gpus) == len(f.UUIDs), "%d GPUs in the PCI tree, wanted %d", len(gpus), len(f.UUIDs))
	groups := map[int]bool{}
	for _, gpu := range gpus {
		check(gpu.Is3DController() && !gpu.IsVGAController(), "class %x", gpu.Class)
		check(strings.Contains(gpu.DeviceName, "A100 SXM4 80GB"), "device name %q", gpu.DeviceName)
		check(gpu.Driver == "nvidia", "driver %q", gpu.Driver)
		check(gpu.NumaNode >= 0, "NUMA node %d", gpu.NumaNode)
		check(gpu.IommuGroup > 0 && !groups[gpu.IommuGroup], "IOMMU group %d", gpu.IommuGroup)
		groups[gpu.IommuGroup] = true
		check(!gpu.SriovInfo.IsVF(), "%s is a virtual function", gpu.Address)
		checkConfig(gpu)
		_, wide := gpu.Resources.GetTotalAddressableMemory(false)
		check(wide > bar1Bytes, "%d bytes of 64-bit regions", wide)
	}
	return gpus
}

func checkConfig(gpu *nvpci.NvidiaPCIDevice) {
	config, err := gpu.Config.Read()
	must("Config.Read", err)
	check(config.GetVendorID() == gpu.Vendor, "vendor %x in config", config.GetVendorID())
	check(config.GetDeviceID() == gpu.Device, "device %x in config", config.GetDeviceID())
	capabilities, err := config.GetPCICapabilities()
	must("GetPCICapabilities", err)
	check(capabilities.Standard[capabilityExpress] != nil, "no PCI Express capability")
	vendor := capabilities.Standard[capabilityVendor]
	check(vendor != nil, "no vendor-specific capability")
	check(vendor.Read8(3) != 'V' || vendor.Read8(4) != 'F', "%s calls itself a vGPU", gpu.Address)
	check(len(capabilities.Extended) == 2, "extended capabilities %v", capabilities.Extended)
}

func checkNVML(f facts, pci []*nvpci.NvidiaPCIDevice) {
	library := nvml.New()
	result := library.Init()
	check(result == nvml.SUCCESS, "Init: %v", result)
	defer library.Shutdown()
	gpus, err := device.New(library).GetDevices()
	must("GetDevices", err)
	check(len(gpus) == len(f.UUIDs), "%d GPUs, wanted %d", len(gpus), len(f.UUIDs))
	for i, gpu := range gpus {
		uuid, result := gpu.GetUUID()
		check(result == nvml.SUCCESS && uuid == f.UUIDs[i], "UUID %s: %v", uuid, result)
		address, err := gpu.GetPCIBusID()
		must("GetPCIBusID", err)
		check(address == pci[i].Address, "NVML says %s, the PCI tree %s", address, pci[i].Address)
		capable, err := gpu.IsMigCapable()
		must("IsMigCapable", err)
		enabled, err := gpu.IsMigEnabled()
		must("IsMigEnabled", err)
		check(capable && !enabled, "MIG: capable %t, enabled %t", capable, enabled)
		architecture, err := gpu.GetArchitectureAsString()
		must("GetArchitectureAsString", err)
		check(architecture == "Ampere", "architecture %s", architecture)
		fabric, err := gpu.IsFabricAttached()
		must("IsFabricAttached", err)
		check(!fabric, "an A100 is in no fabric")
	}
}

func main() {
	var f facts
	if err := json.Unmarshal([]byte(os.Getenv("CLIENT_FACTS")), &f); err != nil {
		log.Fatal(err)
	}
	platform := info.New(info.WithRoot(f.DriverRoot)).ResolvePlatform()
	check(platform == info.PlatformNVML, "platform %s", platform)
	checkNVML(f, checkPCI(f))
	fmt.Printf("go-nvlib: %d GPUs, all answers right\n", len(f.UUIDs))
}
