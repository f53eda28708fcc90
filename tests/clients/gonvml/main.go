// SPDX-License-Identifier: Apache-2.0

// Program gonvml asks the simulated driver through go-nvml, unmodified. Run by run.py.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type facts struct {
	UUIDs     []string `json:"uuids"`
	Name      string   `json:"name"`
	BusyGPU   int      `json:"busy_gpu"`
	BusyPID   uint32   `json:"busy_pid"`
	Allocated uint64   `json:"allocated"`
	InjectXID []string `json:"inject_xid"`
	XIDGPU    int      `json:"xid_gpu"`
	XID       uint64   `json:"xid"`
}

func must(what string, result nvml.Return) {
	if result != nvml.SUCCESS {
		log.Fatalf("%s: %s", what, nvml.ErrorString(result))
	}
}

func check(good bool, format string, arguments ...any) {
	if !good {
		log.Fatalf(format, arguments...)
	}
}

func devices(f facts) []nvml.Device {
	count, result := nvml.DeviceGetCount()
	must("DeviceGetCount", result)
	check(count == len(f.UUIDs), "%d GPUs, wanted %d", count, len(f.UUIDs))
	var all []nvml.Device
	for i := range count {
		device, result := nvml.DeviceGetHandleByIndex(i)
		must("DeviceGetHandleByIndex", result)
		all = append(all, device)
	}
	return all
}

func checkDevice(f facts, index int, device nvml.Device) {
	uuid, result := device.GetUUID()
	must("GetUUID", result)
	check(uuid == f.UUIDs[index], "UUID %s, wanted %s", uuid, f.UUIDs[index])
	name, result := device.GetName()
	must("GetName", result)
	check(name == f.Name, "name %s", name)
	pci, result := device.GetPciInfo()
	must("GetPciInfo", result)
	check(pci.PciDeviceId&0xffff == 0x10de, "PCI id %x", pci.PciDeviceId)
	memory, result := device.GetMemoryInfo_v2()
	must("GetMemoryInfo_v2", result)
	processes, result := device.GetComputeRunningProcesses()
	must("GetComputeRunningProcesses", result)
	if index == f.BusyGPU {
		check(memory.Used >= f.Allocated, "used %d", memory.Used)
		check(len(processes) == 1 && processes[0].Pid == f.BusyPID, "processes %v", processes)
	} else {
		check(memory.Used == 0 && len(processes) == 0, "GPU %d is not idle", index)
	}
	current, pending, result := device.GetMigMode()
	must("GetMigMode", result)
	check(current == 0 && pending == 0, "MIG %d %d", current, pending)
	_, result = device.GetMigDeviceHandleByIndex(0)
	check(result == nvml.ERROR_NOT_FOUND, "MIG device: %s", nvml.ErrorString(result))
	_, result = device.GetGpuFabricInfo()
	check(result == nvml.ERROR_NOT_SUPPORTED, "fabric: %s", nvml.ErrorString(result))
}

// checkLinks makes the calls that the device plugin makes for each GetPreferredAllocation.
func checkLinks(all []nvml.Device) {
	active := 0
	for link := range nvml.NVLINK_MAX_LINKS {
		state, result := all[0].GetNvLinkState(link)
		if result == nvml.ERROR_INVALID_ARGUMENT {
			break
		}
		must("GetNvLinkState", result)
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		active++
		_, result = all[0].GetNvLinkRemotePciInfo(link)
		must("GetNvLinkRemotePciInfo", result)
	}
	check(active == 12, "%d NVLinks", active)
	_, result := nvml.DeviceGetTopologyCommonAncestor(all[0], all[1])
	must("DeviceGetTopologyCommonAncestor", result)
}

// checkMonitoring makes the calls that DCGM and exporters make for each scrape.
func checkMonitoring(device nvml.Device) {
	correctable, uncorrectable, pending, failed, result := device.GetRemappedRows()
	must("GetRemappedRows", result)
	check(correctable == 0 && uncorrectable == 0 && !pending && !failed, "rows are remapped")
	banks, result := device.GetRowRemapperHistogram()
	must("GetRowRemapperHistogram", result)
	check(banks.Max == 640, "%d banks", banks.Max)
	_, result = device.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	check(result == nvml.ERROR_NOT_SUPPORTED, "retired pages: %s", nvml.ErrorString(result))
	inforom, result := device.GetInforomImageVersion()
	must("GetInforomImageVersion", result)
	check(inforom == "G506.0210.00.04", "infoROM %s", inforom)
	fields := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_ECC_DBE_AGG_TOTAL}, {FieldId: nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
		{FieldId: nvml.FI_DEV_PERF_POLICY_POWER}, {FieldId: nvml.FI_DEV_REMAPPED_PENDING},
		{FieldId: nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS}, {FieldId: nvml.FI_DEV_NVLINK_REMOTE_NVLINK_ID, ScopeId: 3},
	}
	must("GetFieldValues", device.GetFieldValues(fields))
	for _, field := range fields {
		must(fmt.Sprintf("field %d", field.FieldId), nvml.Return(field.NvmlReturn))
	}
	support, result := device.GpmQueryDeviceSupport()
	must("GpmQueryDeviceSupport", result)
	check(support.IsSupportedDevice == 0, "an A100 has no GPM")
	reasons, result := device.GetCurrentClocksEventReasons()
	must("GetCurrentClocksEventReasons", result)
	check(reasons == nvml.ClocksEventReasonGpuIdle, "reasons %x", reasons)
}

func checkEvent(f facts, all []nvml.Device) {
	set, result := nvml.EventSetCreate()
	must("EventSetCreate", result)
	for _, device := range all {
		types, result := device.GetSupportedEventTypes()
		must("GetSupportedEventTypes", result)
		wanted := uint64(nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError)
		must("RegisterEvents", device.RegisterEvents(types&wanted, set))
	}
	inject := exec.Command(f.InjectXID[0], f.InjectXID[1:]...)
	if err := inject.Start(); err != nil {
		log.Fatal(err)
	}
	event, result := set.Wait(30000)
	must("Wait", result)
	check(event.EventData == f.XID, "XID %d", event.EventData)
	uuid, result := event.Device.GetUUID()
	must("GetUUID", result)
	check(uuid == f.UUIDs[f.XIDGPU], "XID of %s", uuid)
	if err := inject.Wait(); err != nil {
		log.Fatal(err)
	}
	must("Free", set.Free())
}

func main() {
	var f facts
	if err := json.Unmarshal([]byte(os.Getenv("CLIENT_FACTS")), &f); err != nil {
		log.Fatal(err)
	}
	must("Init", nvml.Init())
	all := devices(f)
	for index, device := range all {
		checkDevice(f, index, device)
	}
	checkLinks(all)
	checkMonitoring(all[0])
	checkEvent(f, all)
	must("Shutdown", nvml.Shutdown())
	fmt.Printf("go-nvml: %d GPUs, all answers right\n", len(all))
}
