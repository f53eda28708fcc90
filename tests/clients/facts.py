# SPDX-License-Identifier: Apache-2.0
"""The facts about the node that run.py has made, and functions by which clients check them."""
import json
import os
import subprocess
import time

FACTS = json.loads(os.environ["CLIENT_FACTS"])
LIMITED = FACTS["limited"]
MIB = 1 << 20
# A size in whole blocks of 2 MiB that fits on the GPU or in the share once, but not twice.
LARGE = FACTS["memory"] * 5 // 8 // (2 * MIB) * (2 * MIB)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def check_equal(found, wanted, what):
    check(found == wanted, f"{what}: {found}, not {wanted}")


def expect_error(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return
    raise AssertionError(f"{function.__name__} did not raise {error}")


def device_bytes():
    """The memory of the first GPU that is in use according to the simulated driver."""
    shown = subprocess.run(FACTS["show"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(shown)["gpus"][0]["used_bytes"]


def free_bytes():
    """The memory that a program alone on the first GPU, or in its share, can still allocate."""
    shown = subprocess.run(FACTS["show"], check=True, stdout=subprocess.PIPE, text=True).stdout
    gpu = json.loads(shown)["gpus"][0]
    used = gpu["used_bytes"]
    if LIMITED:  # contexts do not count for a share
        used -= sum(process["contexts"] for process in gpu["processes"]) * FACTS["context"]
    return FACTS["memory"] - used


def check_filling(piece, size, error, check_copies, slack, flush=lambda: None):
    """Fills memory with pieces of `size` until `error` is raised, twice. Returns the use before."""
    used = device_bytes()
    fit = free_bytes() // size
    pieces = [piece() for _ in range(fit)]
    check_equal(device_bytes() - used, fit * size, "used of the device")
    for _ in range(2):
        expect_error(error, piece)
    wait_for_sample()
    check(device_bytes() - used <= fit * size + slack, "refused memory is not held")
    pieces.clear()
    check_copies()  # the program goes on
    flush()
    pieces = [piece() for _ in range(fit)]
    check(device_bytes() - used <= fit * size + slack, "freed memory is not held")
    return used


def wait_for_sample():
    """Waits until run.py, which reads the device every 50 ms, has seen the present state."""
    time.sleep(0.2)


def check_pace(what, milliseconds, work):
    """Checks how long work took that needs `work` ms on a whole GPU and 1/share as long in a share."""
    wanted = work / FACTS["compute"] if LIMITED else work
    # The time may be shorter, because the limiter lends some GPU time at the start, or longer,
    # because the machine may be busy.
    check(0.8 * wanted <= milliseconds <= 3 * wanted + 500,
          f"{what}: {work} ms of GPU time took {milliseconds:.0f} ms, about {wanted:.0f} expected")
