# SPDX-License-Identifier: Apache-2.0
"""numba-cuda, as from PyPI: kernels from Python functions, arrays, and running out of memory.

Run by run.py, with the whole GPU or with a share of it. The simulated GPU computes none of its
kernels, so no test reads the results of the kernels.
"""
import warnings

import numpy as np
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

from facts import FACTS, LARGE, check, check_equal, check_pace, device_bytes, wait_for_sample

KERNEL_MS = 2.0  # the value in $SIMGPU_KERNEL_NS


@cuda.jit
def reverse(values):
    shared = cuda.shared.array(256, np.float32)
    i = cuda.threadIdx.x
    shared[i] = values[cuda.grid(1)]
    cuda.syncthreads()
    values[cuda.grid(1)] = shared[255 - i]


@cuda.reduce
def add(a, b):
    return a + b


def free_memory():
    return cuda.current_context().get_memory_info().free


def check_arrays():
    host = np.arange(1000, dtype=np.float32)
    stream = cuda.stream()
    with cuda.pinned(host):
        device = cuda.to_device(host, stream=stream)
        stream.synchronize()
    check(np.array_equal(device.copy_to_host(), host), "values there and back")
    pitched = cuda.device_array((3, 5), np.int64)
    check_equal(pitched.copy_to_host().shape, (3, 5), "shape")
    add(host)


def check_memory():
    check_equal(cuda.current_context().get_memory_info().total, FACTS["memory"], "total memory")
    cuda.current_context().deallocations.clear()
    free, used = free_memory(), device_bytes()
    array = cuda.device_array(LARGE, np.uint8)
    check_equal(free - free_memory(), LARGE, "decrease of the free memory")
    check_equal(device_bytes() - used, LARGE, "used of the device")
    for _ in range(2):
        try:
            cuda.device_array(LARGE, np.uint8)
        except CudaAPIError as error:
            check_equal(int(error.code), 2, "error of the driver")
        else:
            raise AssertionError("more than the share was allocated")
    check_arrays()  # the program goes on
    wait_for_sample()
    del array
    cuda.current_context().deallocations.clear()
    check(device_bytes() <= used, "freed memory is not held")
    array_again = cuda.device_array(LARGE, np.uint8)
    del array_again
    cuda.current_context().deallocations.clear()


def check_time():
    threads = 2 * 108 * 1024
    values = cuda.device_array(threads, np.float32)
    reverse[threads // 256, 256](values)  # the first call compiles the kernel
    begin, end = cuda.event(), cuda.event()
    begin.record()
    for _ in range(300):
        reverse[threads // 256, 256](values)
    end.record()
    end.synchronize()
    check_pace("launches", cuda.event_elapsed_time(begin, end), 300 * KERNEL_MS)


def main():
    warnings.simplefilter("ignore")  # about grids that are too small for a GPU
    check(cuda.is_available(), "CUDA is not available")
    check_equal(cuda.get_current_device().name, FACTS["name"], "name")
    check_arrays()
    check_memory()
    check_time()
    print("numba-cuda: arrays, memory and kernels right")


if __name__ == "__main__":
    main()
