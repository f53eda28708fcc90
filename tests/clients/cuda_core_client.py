# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's cuda-core, as from PyPI: programs, pools, graphs, virtual memory, and their errors.

Run by run.py, with the whole GPU or with a share of it.
"""
import numpy as np
from cuda.core import (Device, DeviceMemoryResource, DeviceMemoryResourceOptions, EventOptions,
                       LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions,
                       VirtualMemoryResource, launch)
from cuda.core._utils.cuda_utils import CUDAError

from facts import FACTS, LARGE, MIB, check, check_equal, check_pace, device_bytes

SOURCE = r"""
extern "C" __global__ void vectorAdd(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
template <typename T> __global__ void spin(T) {}
"""
SPIN_MS = 2.0  # the value in $SIMGPU_KERNEL_NS


def expect_out_of_memory(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except CUDAError as error:
        check("CUDA_ERROR_OUT_OF_MEMORY" in str(error), f"error {error}")
        return
    raise AssertionError(f"{function.__qualname__} had to fail")


def kernels(device, kind):
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    code = Program(SOURCE, "c++", options).compile(kind, name_expressions=("spin<int>",))
    return code.get_kernel("vectorAdd"), code.get_kernel("spin<int>")


def check_launch(device, stream, kind):
    add, _ = kernels(device, kind)
    check_equal([(one.offset, one.size) for one in add.arguments_info],
                [(0, 8), (8, 8), (16, 8), (24, 4)], "arguments of the kernel")
    count = 1000
    host = LegacyPinnedMemoryResource().allocate(4 * count)
    values = np.from_dlpack(host).view(np.float32)
    values[:] = np.arange(count)
    a, b, c = (device.allocate(4 * count, stream=stream) for _ in range(3))
    for buffer in (a, b):
        host.copy_to(buffer, stream=stream)
    launch(stream, LaunchConfig(grid=4, block=256), add, a, b, c, np.int32(count))
    c.copy_to(host, stream=stream)
    stream.sync()
    check(np.array_equal(values, 2 * np.arange(count, dtype=np.float32)), f"sums, from {kind}")
    for buffer in (a, b, c):
        buffer.close(stream)
    stream.sync()


def check_memory(stream, resource, name, times=2):
    used = device_bytes()
    for _ in range(times):  # freed memory can be allocated again
        buffer = resource.allocate(LARGE, stream=stream)
        more = device_bytes() - used
        # A pool may have kept a block of the freed memory.
        check(LARGE - 2 * MIB <= more <= LARGE, f"{name}: {more} used of the device, not {LARGE}")
        expect_out_of_memory(resource.allocate, LARGE, stream=stream)
        buffer.close(stream)
        stream.sync()


def check_pool_for_others(device, stream):
    options = DeviceMemoryResourceOptions(ipc_enabled=True, max_size=64 * MIB)
    resource = DeviceMemoryResource(device, options)
    buffer = resource.allocate(MIB, stream=stream)
    check(buffer.ipc_descriptor is not None, "a buffer has a name for other processes")
    buffer.close(stream)
    resource.close()


def check_time(device, stream):
    _, spin = kernels(device, "cubin")
    config = LaunchConfig(grid=2 * device.properties.multiprocessor_count, block=1024)
    builder = stream.create_graph_builder() if hasattr(stream, "create_graph_builder") \
        else device.create_graph_builder()
    builder.begin_building()
    for _ in range(10):
        launch(builder, config, spin, np.int32(0))
    graph = builder.end_building().complete()
    timing = EventOptions(timing_enabled=True)
    begin = stream.record(device.create_event(timing))
    for _ in range(30):
        graph.launch(stream)
    end = stream.record(device.create_event(timing))
    end.sync()
    check_pace("graphs", end - begin, 300 * SPIN_MS)
    graph.close()


def main():
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    check_equal(device.name, FACTS["name"], "name")
    for kind in ("ptx", "cubin"):
        check_launch(device, stream, kind)
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    check_memory(stream, pool, "a pool")
    pool.close()  # the pool keeps freed memory until it is closed
    check_pool_for_others(device, stream)
    check_time(device, stream)
    # cuda-core keeps the handle of the memory that it has created, and so the memory itself, until
    # the program ends.
    check_memory(stream, VirtualMemoryResource(device), "virtual memory", times=1)
    print("cuda-core: programs, pools, graphs and virtual memory right")


if __name__ == "__main__":
    main()
