# SPDX-License-Identifier: Apache-2.0
"""gpustat and py3nvml, as from PyPI: memory and processes, of the node or of the container.

Run by run.py, with the whole node or in a container with a share.
"""
import json
import subprocess
import sys

import gpustat
from py3nvml import py3nvml

from facts import FACTS, LIMITED, MIB, check, check_equal


def check_gpustat(uuids, total, busy):
    gpus = gpustat.new_query().gpus
    check_equal([gpu.uuid for gpu in gpus], uuids, "UUIDs")
    for index, gpu in enumerate(gpus):
        check_equal(gpu.name, FACTS["name"], "name")
        check_equal(gpu.memory_total, total // MIB, "memory")
        pids = [process["pid"] for process in gpu.processes]
        check_equal(pids, [busy] if busy and index == FACTS["busy_gpu"] else [], "processes")
        if pids:
            check(gpu.processes[0]["gpu_memory_usage"] >= FACTS["allocated"] // MIB, "memory used")
    # The command `gpustat`, after its library.
    done = subprocess.run([sys.executable, "-m", "gpustat", "--json"], check=True,
                          stdout=subprocess.PIPE, text=True)
    check_equal(len(json.loads(done.stdout)["gpus"]), len(uuids), "GPUs of the command")


def check_py3nvml(uuids, total):
    py3nvml.nvmlInit()
    handles = [py3nvml.nvmlDeviceGetHandleByIndex(i)
               for i in range(py3nvml.nvmlDeviceGetCount())]
    check_equal([py3nvml.nvmlDeviceGetUUID(handle) for handle in handles], uuids, "UUIDs")
    for handle in handles:
        check_equal(py3nvml.nvmlDeviceGetName(handle), FACTS["name"], "name")
        check_equal(py3nvml.nvmlDeviceGetMemoryInfo(handle).total, total, "memory")
    py3nvml.nvmlShutdown()


def main():
    uuids = FACTS["uuids"][:1] if LIMITED else FACTS["uuids"]
    total = FACTS["memory"] if LIMITED else 80 << 30
    check_gpustat(uuids, total, FACTS["busy_pid"])
    check_py3nvml(uuids, total)
    print("gpustat, py3nvml: memory and processes right")


if __name__ == "__main__":
    main()
