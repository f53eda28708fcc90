# SPDX-License-Identifier: Apache-2.0
"""What every client needs: the facts about the node that run.py has made, and how to check them."""
import json
import os
import subprocess
import time

FACTS = json.loads(os.environ["CLIENT_FACTS"])
LIMITED = FACTS["limited"]
MIB = 1 << 20
# The largest part of a GPU or share that fits once and not twice, in whole blocks of 2 MiB.
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
    """What the simulated driver's own account says that is used of the first GPU."""
    shown = subprocess.run(FACTS["show"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(shown)["gpus"][0]["used_bytes"]


def free_bytes():
    """What a program that runs alone on the first GPU, or in its share, can still allocate."""
    shown = subprocess.run(FACTS["show"], check=True, stdout=subprocess.PIPE, text=True).stdout
    gpu = json.loads(shown)["gpus"][0]
    used = gpu["used_bytes"]
    if LIMITED:  # contexts are no part of a share
        used -= sum(one["contexts"] for one in gpu["processes"]) * FACTS["context"]
    return FACTS["memory"] - used


def check_filling(piece, size, error, check_copies, slack, flush=lambda: None):
    """Fills memory with pieces of `size` until `error` comes, twice. Gives what was used before."""
    used = device_bytes()
    fit = free_bytes() // size
    pieces = [piece() for _ in range(fit)]
    check_equal(device_bytes() - used, fit * size, "used of the device")
    for _ in range(2):
        expect_error(error, piece)
    hold()
    check(device_bytes() - used <= fit * size + slack, "refused memory is not held")
    pieces.clear()
    check_copies()  # the program goes on
    flush()
    pieces = [piece() for _ in range(fit)]
    check(device_bytes() - used <= fit * size + slack, "freed memory is not held")
    return used


def hold():
    """Lets run.py see what the device says now; it looks every 50 ms."""
    time.sleep(0.2)


def check_pace(what, milliseconds, work):
    """Work that alone takes `work` milliseconds takes the longer the smaller the share is."""
    wanted = work / FACTS["compute"] if LIMITED else work
    # Less, for what the limiter lends at the start; more, for a machine that is busy.
    check(0.8 * wanted <= milliseconds <= 3 * wanted + 500,
          f"{what}: {work} ms of GPU time took {milliseconds:.0f} ms, about {wanted:.0f} expected")
