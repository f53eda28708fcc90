# SPDX-License-Identifier: Apache-2.0
"""nvitop, as from PyPI: its API, and the screen that `nvitop -1` prints. Run by run.py."""
import json
import os
import subprocess
import sys

import nvitop

FACTS = json.loads(os.environ["CLIENT_FACTS"])


def check(condition, what):
    if not condition:
        raise AssertionError(what)


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


def check_screen():
    done = subprocess.run([sys.executable, "-m", "nvitop", "-1", "--colorful", "--no-unicode"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    check(done.returncode == 0, f"nvitop -1 ended with {done.returncode}:\n{done.stdout}")
    for word in ("NVITOP", "A100-SXM4-80GB", "80.00GiB", str(FACTS["busy_pid"])):
        check(word in done.stdout, f"{word} is not on the screen:\n{done.stdout}")


def main():
    check_api()
    check_screen()
    print("nvitop: API and screen right")


if __name__ == "__main__":
    main()
