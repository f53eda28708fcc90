# SPDX-License-Identifier: Apache-2.0
"""nvidia-ml-py, as from PyPI, against the simulated driver. Run by run.py."""
import subprocess
import sys

import pynvml as nv

from facts import FACTS, LIMITED, MIB, check, check_equal, expect_error


def check_identity(handles):
    check([nv.nvmlDeviceGetUUID(h) for h in handles] == FACTS["uuids"], "UUIDs")
    for index, handle in enumerate(handles):
        check(nv.nvmlDeviceGetName(handle) == FACTS["name"], "name")
        check(nv.nvmlDeviceGetIndex(handle) == index, "index")
        check(nv.nvmlDeviceGetMinorNumber(handle) == index, "minor number")
        pci = nv.nvmlDeviceGetPciInfo(handle)
        check(len(pci.busId.split(":")[0]) == 8, f"bus id {pci.busId}")
        check(len(pci.busIdLegacy.split(":")[0]) == 4, f"legacy bus id {pci.busIdLegacy}")
        again = nv.nvmlDeviceGetHandleByPciBusId(pci.busId)
        check(nv.nvmlDeviceGetUUID(again) == FACTS["uuids"][index], "handle by bus id")
        check(nv.nvmlDeviceGetCudaComputeCapability(handle) == (8, 0), "compute capability")
        check(nv.nvmlDeviceGetArchitecture(handle) == nv.NVML_DEVICE_ARCH_AMPERE, "architecture")


def check_memory(handles):
    for index, handle in enumerate(handles):
        memory = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
        check(memory.total == 80 << 30, f"total {memory.total}")
        check(memory.total == memory.free + memory.used + memory.reserved, "sum of memory")
        busy = index == FACTS["busy_gpu"]
        check((memory.used >= FACTS["allocated"]) == busy, f"used {memory.used} of GPU {index}")
        processes = nv.nvmlDeviceGetComputeRunningProcesses(handle)
        check([p.pid for p in processes] == ([FACTS["busy_pid"]] if busy else []), "processes")
        if busy:
            check(processes[0].usedGpuMemory == memory.used, "memory of the process")
            check("python" in nv.nvmlSystemGetProcessName(processes[0].pid), "process name")
        check(nv.nvmlDeviceGetGraphicsRunningProcesses(handle) == [], "graphics processes")


def check_condition(handle):
    check(0 <= nv.nvmlDeviceGetUtilizationRates(handle).gpu <= 100, "utilization")
    check(nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU) > 0, "temperature")
    power = nv.nvmlDeviceGetPowerUsage(handle)
    check(0 < power <= nv.nvmlDeviceGetEnforcedPowerLimit(handle), f"power {power}")
    check(nv.nvmlDeviceGetMaxClockInfo(handle, nv.NVML_CLOCK_SM) > 1000, "clock")
    check(nv.nvmlDeviceGetEccMode(handle) == [1, 1], "ECC mode")
    check(nv.nvmlDeviceGetMigMode(handle) == [0, 0], "MIG mode")
    expect_error(nv.NVMLError_NotFound, nv.nvmlDeviceGetMigDeviceHandleByIndex, handle, 0)
    expect_error(nv.NVMLError_NotSupported, nv.nvmlDeviceGetFanSpeed, handle)
    expect_error(nv.NVMLError_NotSupported, nv.nvmlDeviceGetCreatableVgpus, handle)
    fields = nv.nvmlDeviceGetFieldValues(
        handle, [nv.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, nv.NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0])
    check(fields[0].nvmlReturn == nv.NVML_SUCCESS, "energy field")
    check(fields[1].nvmlReturn == nv.NVML_ERROR_NOT_SUPPORTED, "unknown field")


def check_links(handles):
    for handle in handles:
        links = [link for link in range(nv.NVML_NVLINK_MAX_LINKS) if link_is_up(handle, link)]
        check(len(links) == 12, f"{len(links)} NVLinks")
        kind = nv.nvmlDeviceGetNvLinkRemoteDeviceType(handle, links[0])
        check(kind in (nv.NVML_NVLINK_DEVICE_TYPE_GPU, nv.NVML_NVLINK_DEVICE_TYPE_SWITCH), "type")
    level = nv.nvmlDeviceGetTopologyCommonAncestor(handles[0], handles[1])
    check(nv.NVML_TOPOLOGY_SINGLE <= level <= nv.NVML_TOPOLOGY_SYSTEM, f"level {level}")


def link_is_up(handle, link):
    try:
        return nv.nvmlDeviceGetNvLinkState(handle, link) == nv.NVML_FEATURE_ENABLED
    except nv.NVMLError_InvalidArgument:  # a link that this GPU does not have
        return False


def check_event(handles):
    events = nv.nvmlEventSetCreate()
    for handle in handles:
        nv.nvmlDeviceRegisterEvents(handle, nv.nvmlEventTypeXidCriticalError, events)
    expect_error(nv.NVMLError_Timeout, nv.nvmlEventSetWait_v2, events, 0)
    with subprocess.Popen(FACTS["inject_xid"]):
        data = nv.nvmlEventSetWait_v2(events, 30000)
    check(data.eventType == nv.nvmlEventTypeXidCriticalError, "event type")
    check(data.eventData == FACTS["xid"], f"XID {data.eventData}")
    check(nv.nvmlDeviceGetUUID(data.device) == FACTS["uuids"][FACTS["xid_gpu"]], "GPU of the XID")
    nv.nvmlEventSetFree(events)


def check_share(handle):
    """NVML reports the share as the GPU's memory, and the container's memory as the used part."""
    def check_memory(used):
        for memory in (nv.nvmlDeviceGetMemoryInfo(handle),
                       nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)):
            check_equal(memory.total, FACTS["memory"], "total")
            check_equal(memory.used, used, "used")
            check_equal(memory.free, memory.total - used, "free")

    check_memory(0)
    command = [sys.executable, FACTS["allocate"], FACTS["libcuda"], "0", str(300 * MIB)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as other:
        check_equal(other.stdout.readline().strip(), "ready", "the other process")
        check_memory(300 * MIB)
        processes = nv.nvmlDeviceGetComputeRunningProcesses(handle)
        check_equal([process.pid for process in processes], [other.pid], "processes")
        other.stdin.close()
        check_equal(other.wait(), 0, "exit status of the other process")
    check_memory(0)


def main():
    expect_error(nv.NVMLError_Uninitialized, nv.nvmlDeviceGetCount)
    nv.nvmlInit()
    check(nv.nvmlSystemGetDriverVersion().count(".") >= 1, "driver version")
    check(nv.nvmlSystemGetCudaDriverVersion() >= 11000, "CUDA version")
    handles = [nv.nvmlDeviceGetHandleByIndex(i) for i in range(nv.nvmlDeviceGetCount())]
    if LIMITED:
        check_equal([nv.nvmlDeviceGetUUID(h) for h in handles], FACTS["uuids"][:1], "UUIDs")
        check_share(handles[0])
        print("nvidia-ml-py: the share in place of the GPU")
        return
    expect_error(nv.NVMLError_NotFound, nv.nvmlDeviceGetHandleByUUID, "GPU-none")
    check_identity(handles)
    check_memory(handles)
    check_condition(handles[0])
    check_links(handles)
    check_event(handles)
    nv.nvmlShutdown()
    print(f"nvidia-ml-py: {len(handles)} GPUs, all answers right")


if __name__ == "__main__":
    main()
