# SPDX-License-Identifier: Apache-2.0
"""Dr.Jit, as from PyPI: arrays and textures, kernels that it compiles, and running out of memory.

Run by run.py, with the whole GPU or with a share of it. The simulated GPU computes none of its
kernels, so no test reads the results of the kernels.
"""
import time

import drjit as dr
import numpy as np
from drjit.cuda import Float, TensorXf, Texture2f

from facts import FACTS, MIB, check, check_equal, check_filling, check_pace, device_bytes

KERNEL_MS = 2.0  # the value in $SIMGPU_KERNEL_NS
PIECE = 2048 * MIB


def piece():
    array = dr.zeros(Float, PIECE // 4)
    dr.make_opaque(array)
    return array


def check_copies():
    host = np.arange(1000, dtype=np.float32)
    check(np.array_equal(np.array(Float(host)), host), "values there and back")
    pixels = np.arange(64 * 64 * 4, dtype=np.float32).reshape(64, 64, 4)
    texture = Texture2f(TensorXf(pixels))
    check_equal(texture.shape, (64, 64, 4), "shape of the texture")
    check(np.array_equal(np.array(texture.tensor()), pixels), "pixels there and back")


def check_memory():
    """Dr.Jit keeps freed memory, and gives it back to the driver when memory is short."""
    check_copies()
    dr.flush_malloc_cache()
    used = check_filling(piece, PIECE, RuntimeError, check_copies, 16 * MIB, dr.flush_malloc_cache)
    dr.flush_malloc_cache()
    check(device_bytes() - used <= 16 * MIB, "memory is given back")


def check_time():
    values = dr.zeros(Float, 2 * 108 * 1024)
    dr.make_opaque(values)
    steps = 200
    start = time.monotonic()
    for _ in range(steps):
        values = values * 0.5 + 1
        dr.eval(values)
    dr.sync_thread()
    check_pace("launches", (time.monotonic() - start) * 1000, steps * KERNEL_MS)


def main():
    check(dr.has_backend(dr.JitBackend.CUDA), "Dr.Jit does not find CUDA")
    check_copies()
    check_memory()
    check_time()
    print(f"Dr.Jit: copies, textures, memory and kernels right on {FACTS['name']}")


if __name__ == "__main__":
    main()
