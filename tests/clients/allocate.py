# SPDX-License-Identifier: Apache-2.0
"""Holds device memory through libcuda.so.1 until its standard input ends.

Usage: allocate.py LIBCUDA ORDINAL BYTES. Prints "ready" when the memory is there.
"""
import ctypes
import sys


def main():
    library, ordinal, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cuda = ctypes.CDLL(library)

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result != 0:
            sys.exit(f"{name}: CUDA error {result}")

    device = ctypes.c_int()
    context = ctypes.c_void_p()
    pointer = ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
