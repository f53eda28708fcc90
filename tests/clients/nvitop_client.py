# SPDX-License-Identifier: Apache-2.0
"""nvitop, as from PyPI: its API, and the screen that `nvitop -1` prints. Run by run.py."""
import contextlib
import subprocess
import sys

import nvitop

from facts import FACTS, LIMITED, MIB, check, check_equal


def check_api():
    devices = nvitop.Device.all()
    check([device.uuid() for device in devices] == FACTS["uuids"], "UUIDs")
    for index, device in enumerate(devices):
        check(device.name() == FACTS["name"], f"name {device.name()}")
        check(device.memory_total() == 80 << 30, "memory")
        check(device.fan_speed() == nvitop.NA, "fan speed")
        check(device.is_mig_mode_enabled() is False, "MIG mode")
        check(device.performance_state() == "P0", "performance state")
        check(0 < device.power_usage() <= device.power_limit(), "power")
        busy = index == FACTS["busy_gpu"]
        check(list(device.processes()) == ([FACTS["busy_pid"]] if busy else []), "processes")
        if busy:
            process = device.processes()[FACTS["busy_pid"]]
            check(process.gpu_memory() >= FACTS["allocated"], "memory of the process")
            check(process.type == "C", "type of the process")
        check(device.as_snapshot().uuid == FACTS["uuids"][index], "snapshot")


def check_screen(*words):
    done = subprocess.run([sys.executable, "-m", "nvitop", "-1", "--colorful", "--no-unicode"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode == 0, f"nvitop -1 ended with {done.returncode}:\n{done.stdout}")
    for word in ("NVITOP", "A100-SXM4-80GB", *words):
        check(word in done.stdout, f"{word} is not on the screen:\n{done.stdout}")


@contextlib.contextmanager
def holder(size):
    """Starts another process of the container that holds device memory. Yields its pid."""
    command = [sys.executable, FACTS["allocate"], FACTS["libcuda"], "0", str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        check_equal(process.stdout.readline().strip(), "ready", "the other process")
        yield process.pid
        process.stdin.close()
        check_equal(process.wait(), 0, "exit status of the other process")


def check_share():
    """nvitop shows the share as the GPU's memory, and the container's memory as the used part."""
    devices = nvitop.Device.all()
    check_equal([device.uuid() for device in devices], FACTS["uuids"][:1], "UUIDs")
    check_equal(devices[0].memory_used(), 0, "memory used")
    with holder(3072 * MIB) as pid:
        check_equal(devices[0].memory_total(), FACTS["memory"], "memory")
        check_equal(devices[0].memory_used(), 3072 * MIB, "memory used")
        check_equal(list(devices[0].processes()), [pid], "processes")
        check_screen("3072MiB / 8192MiB", str(pid))
    check_equal(devices[0].memory_used(), 0, "memory used")


def main():
    if LIMITED:
        check_share()
        print("nvitop: the share in place of the GPU")
        return
    check_api()
    check_screen("80.00GiB", str(FACTS["busy_pid"]))
    print("nvitop: API and screen right")


if __name__ == "__main__":
    main()
