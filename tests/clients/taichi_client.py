# SPDX-License-Identifier: Apache-2.0
"""Taichi, as from PyPI: arrays, kernels from Python functions, and running out of memory.

Run by run.py, with the whole GPU or with a share of it. The simulated GPU computes none of its
kernels, so no test reads the results of the kernels.
"""
import time

import numpy as np
import taichi as ti

from facts import FACTS, LIMITED, MIB, check, check_equal, check_filling

KERNEL_SECONDS = 0.002  # the value in $SIMGPU_KERNEL_NS
PIECE = 1024 * MIB


@ti.kernel
def add(values: ti.types.ndarray(), other: ti.f32):
    for i in values:
        values[i] += other


def piece():
    return ti.ndarray(ti.f32, shape=PIECE // 4)


def check_copies():
    host = np.arange(1000, dtype=np.float32)
    values = host.copy()
    add(values, 1.0)  # copies the array to the GPU, runs a kernel, and copies it back
    check(np.array_equal(values, host), "values there and back")


def check_memory():
    check_copies()
    check_filling(piece, PIECE, RuntimeError, check_copies, 4 * MIB)


def check_time():
    values = ti.ndarray(ti.f32, shape=2 * 108 * 1024)
    add(values, 1.0)
    ti.sync()
    start = time.monotonic()
    steps = 200
    for _ in range(steps):
        add(values, 1.0)
    ti.sync()
    took = time.monotonic() - start
    # A step runs one or more kernels.
    wanted = steps * KERNEL_SECONDS / (FACTS["compute"] if LIMITED else 1)
    check(took >= 0.8 * wanted, f"{steps} steps took {took:.2f} s, not {wanted:.2f} s")


def main():
    ti.init(arch=ti.cuda, device_memory_GB=1, log_level=ti.ERROR, offline_cache=False)
    check_equal(ti.cfg.arch, ti.cuda, "the device that Taichi chose")
    check_memory()
    check_time()
    ti.reset()
    print("Taichi: arrays, memory and kernels right")


if __name__ == "__main__":
    main()
