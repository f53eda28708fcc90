# SPDX-License-Identifier: Apache-2.0
"""Halide, as from PyPI: pipelines that it compiles for the GPU, buffers, and running out of memory.

Run by run.py, with the whole GPU or with a share of it. The simulated GPU computes none of its
kernels, so no test reads the results of the kernels.
"""
import time

import halide as hl
import numpy as np

from facts import FACTS, LARGE, LIMITED, MIB, check, device_bytes, expect_error, wait_for_sample

KERNEL_SECONDS = 0.002  # the value in $SIMGPU_KERNEL_NS
SIZE = 1 << (LARGE.bit_length() - 1)  # a power of two, because Halide rounds other sizes up
TARGET = (hl.get_host_target().with_feature(hl.TargetFeature.CUDA)
          .with_feature(hl.TargetFeature.CUDACapability80)
          .with_feature(hl.TargetFeature.LargeBuffers))


def pipeline(size):
    """Writes `size` bytes of the GPU's memory, and from these 16 numbers."""
    x, y, outer, inner = hl.Var("x"), hl.Var("y"), hl.Var("outer"), hl.Var("inner")
    row, rows = hl.Var("row"), hl.Var("rows")
    wide, few = hl.Func("wide"), hl.Func("few")
    wide[x, y] = hl.cast(hl.UInt(8), x + y)
    few[x] = wide[x, 0] + wide[x + MIB - 16, size // MIB - 1]
    wide.compute_root().gpu_tile(x, y, outer, rows, inner, row, 16, 16)
    few.gpu_tile(x, outer, inner, 16)
    few.compile_jit(TARGET)
    return few


def run(function):
    return function.realize([16], TARGET)


def check_copies():
    host = np.arange(1000, dtype=np.float32)
    buffer = hl.Buffer(host.copy())
    buffer.set_host_dirty()
    buffer.copy_to_device(TARGET)
    np.asarray(buffer)[:] = 0
    buffer.set_device_dirty()
    buffer.copy_to_host()
    check(np.array_equal(np.asarray(buffer), host), "values there and back")


def check_memory():
    """Halide keeps freed memory, and gives it back to the driver when memory is short."""
    check_copies()
    used = device_bytes()
    large = pipeline(SIZE)
    run(large)
    held = device_bytes() - used
    check(SIZE <= held <= SIZE + 4 * MIB, f"{held} bytes used of the device, not {SIZE}")
    too_large = pipeline(4 * SIZE)
    for _ in range(2):
        expect_error(hl.HalideError, run, too_large)
    check_copies()  # the program goes on
    wait_for_sample()
    check(device_bytes() - used <= SIZE + 4 * MIB, "refused memory is not held")
    run(large)
    check(device_bytes() - used <= SIZE + 4 * MIB, "freed memory is not held")


def check_time():
    function = pipeline(2 * MIB)
    run(function)
    start = time.monotonic()
    steps = 100
    for _ in range(steps):
        run(function)  # two kernels
    took = time.monotonic() - start
    wanted = 2 * steps * KERNEL_SECONDS / (FACTS["compute"] if LIMITED else 1)
    check(took >= 0.8 * wanted, f"{steps} steps took {took:.2f} s, not {wanted:.2f} s")


def main():
    check_memory()
    check_time()
    print("Halide: copies, memory and kernels right")


if __name__ == "__main__":
    main()
