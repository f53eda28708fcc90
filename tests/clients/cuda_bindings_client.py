# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's cuda-bindings and NVRTC, as from PyPI: memory of every kind, kernels, graphs, IPC.

Run by run.py, with the whole GPU or with a share of it: the same calls must succeed and fail.
"""
import ctypes
import subprocess
import sys

from cuda.bindings import driver, nvrtc

from facts import FACTS, LARGE, LIMITED, MIB, check_equal, check_pace, device_bytes, wait_for_sample

SOURCE = rb"""
__device__ int counter = 7;
extern "C" __global__ void vectorAdd(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i] + 0 * counter;
}
extern "C" __global__ void spin(void) {}
"""
SPIN_MS = 2.0  # the value in $SIMGPU_KERNEL_NS
HANDLE_BYTES = 64


class CudaError(Exception):
    def __init__(self, function, code):
        super().__init__(f"{function.__name__}: {code.name}")
        self.code = code


def call(function, *arguments):
    code, *values = function(*arguments)
    if int(code) != 0:
        raise CudaError(function, code)
    return values[0] if len(values) == 1 else values


def expect_out_of_memory(function, *arguments):
    try:
        function(*arguments)
    except CudaError as error:
        check_equal(error.code, driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, "error")
        return
    raise AssertionError(f"{function.__qualname__} had to fail")


def free_memory():
    return call(driver.cuMemGetInfo)[0]


def compiled(architecture):
    """Returns PTX for a virtual architecture (compute_80), or a cubin for a real one (sm_80)."""
    program = call(nvrtc.nvrtcCreateProgram, SOURCE, b"client.cu", 0, [], [])
    call(nvrtc.nvrtcCompileProgram, program, 1, [b"--gpu-architecture=" + architecture])
    size, get = ((nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN) if architecture.startswith(b"sm")
                 else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX))
    image = b" " * call(size, program)
    call(get, program, image)
    call(nvrtc.nvrtcDestroyProgram, program)
    return image


# The kinds of memory. allocate() returns the value that free() needs. Both have finished their work
# when they return.
class Linear:
    @staticmethod
    def allocate(size):
        return call(driver.cuMemAlloc, size)

    @staticmethod
    def free(pointer):
        call(driver.cuMemFree, pointer)


class Managed(Linear):
    @staticmethod
    def allocate(size):
        flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
        return call(driver.cuMemAllocManaged, size, flags.value)


class DefaultPool:
    @staticmethod
    def allocate(size):
        pointer = call(driver.cuMemAllocAsync, size, 0)
        call(driver.cuStreamSynchronize, 0)
        return pointer

    @staticmethod
    def free(pointer):
        call(driver.cuMemFreeAsync, pointer, 0)
        call(driver.cuStreamSynchronize, 0)


def on_device():
    location = driver.CUmemLocation()
    location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = 0
    return location


class OwnPool:
    """A pool that keeps freed memory until another allocation needs it."""
    pool = None

    @classmethod
    def allocate(cls, size):
        if cls.pool is None:
            properties = driver.CUmemPoolProps()
            properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            properties.location = on_device()
            cls.pool = call(driver.cuMemPoolCreate, properties)
            threshold = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            call(driver.cuMemPoolSetAttribute, cls.pool, threshold, driver.cuuint64_t(1 << 60))
        pointer = call(driver.cuMemAllocFromPoolAsync, size, cls.pool, 0)
        call(driver.cuStreamSynchronize, 0)
        return pointer

    @classmethod
    def free(cls, pointer):
        DefaultPool.free(pointer)
        call(driver.cuMemPoolTrimTo, cls.pool, 0)


class Mapped:
    """Virtual memory management."""
    @staticmethod
    def allocate(size):
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location = on_device()
        handle = call(driver.cuMemCreate, size, properties, 0)
        pointer = call(driver.cuMemAddressReserve, size, 0, 0, 0)
        call(driver.cuMemMap, pointer, size, 0, handle, 0)
        access = driver.CUmemAccessDesc()
        access.location = on_device()
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call(driver.cuMemSetAccess, pointer, size, [access], 1)
        call(driver.cuMemRelease, handle)  # the mapping keeps the memory
        Mapped.size = size
        return pointer

    @staticmethod
    def free(pointer):
        call(driver.cuMemUnmap, pointer, Mapped.size)
        call(driver.cuMemAddressFree, pointer, Mapped.size)


class OfGraph:
    """A memory node, made by capturing a stream. The launch of the graph allocates the memory."""
    @staticmethod
    def allocate(size):
        stream = call(driver.cuStreamCreate, 1)
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        call(driver.cuStreamBeginCapture, stream, mode)
        pointer = call(driver.cuMemAllocAsync, size, stream)
        graph = call(driver.cuStreamEndCapture, stream)
        try:
            instance = call(driver.cuGraphInstantiate, graph, 0)
            try:
                call(driver.cuGraphLaunch, instance, stream)
                call(driver.cuStreamSynchronize, stream)
            finally:
                call(driver.cuGraphExecDestroy, instance)
        finally:
            call(driver.cuGraphDestroy, graph)
            call(driver.cuStreamDestroy, stream)
        return pointer

    @staticmethod
    def free(pointer):
        call(driver.cuMemFree, pointer)
        call(driver.cuDeviceGraphMemTrim, 0)


def check_views(device):
    check_equal(call(driver.cuDeviceTotalMem, device), FACTS["memory"], "cuDeviceTotalMem")
    check_equal(call(driver.cuMemGetInfo)[1], FACTS["memory"], "total of cuMemGetInfo")


def check_contents(pointer, size):
    last = int(pointer) + size - 4
    call(driver.cuMemsetD32, last, 0x01020304, 1)
    read = bytearray(4)
    call(driver.cuMemcpyDtoH, read, last, 4)
    check_equal(bytes(read), b"\x04\x03\x02\x01", "contents of the last word")


def check_memory(kind):
    free, used = free_memory(), device_bytes()
    for _ in range(2):  # freed memory can be allocated again
        pointer = kind.allocate(LARGE)
        check_contents(pointer, LARGE)
        check_equal(free - free_memory(), LARGE, f"{kind.__name__}: decrease of the free memory")
        check_equal(device_bytes() - used, LARGE, f"{kind.__name__}: used of the device")
        for other in (kind, Linear):
            expect_out_of_memory(other.allocate, LARGE)
        Linear.free(Linear.allocate(2 * MIB))  # the program goes on
        check_equal(free - free_memory(), LARGE, f"{kind.__name__}: after refusals")
        kind.free(pointer)
        check_equal(free_memory(), free, f"{kind.__name__}: free after it was freed")
        check_equal(device_bytes(), used, f"{kind.__name__}: used after it was freed")


def check_fill():
    """A program can allocate all of the GPU or of the share, and not a byte more."""
    piece, used = 256 * MIB, device_bytes()
    pieces = [Linear.allocate(piece) for _ in range(free_memory() // piece)]
    expect_out_of_memory(Linear.allocate, piece)
    check_equal(device_bytes() - used, len(pieces) * piece, "used of the device when it is full")
    if LIMITED:
        check_equal(len(pieces) * piece, FACTS["memory"], "what could be allocated")
    wait_for_sample()
    for pointer in pieces:
        Linear.free(pointer)


def check_module(architecture):
    module = call(driver.cuModuleLoadData, compiled(architecture))
    pointer, size = call(driver.cuModuleGetGlobal, module, b"counter")
    read = ctypes.c_int()
    call(driver.cuMemcpyDtoH, ctypes.addressof(read), pointer, size)
    check_equal((size, read.value), (4, 7), "a variable of the module")
    check_sum(call(driver.cuModuleGetFunction, module, b"vectorAdd"))
    call(driver.cuModuleUnload, module)


def check_library():
    library = call(driver.cuLibraryLoadData, compiled(b"compute_80"), [], [], 0, [], [], 0)
    check_equal(call(driver.cuLibraryGetGlobal, library, b"counter")[1], 4, "size of a variable")
    kernel = call(driver.cuLibraryGetKernel, library, b"vectorAdd")
    check_sum(call(driver.cuKernelGetFunction, kernel))
    call(driver.cuLibraryUnload, library)


def check_sum(function):
    """Runs vectorAdd, which is one of the kernels that the simulated GPU computes."""
    count = 1000
    host = (ctypes.c_float * count)(*range(count))
    a, b, c = (Linear.allocate(4 * count) for _ in range(3))
    for pointer in (a, b):
        call(driver.cuMemcpyHtoD, pointer, ctypes.addressof(host), 4 * count)
    values = ((a, b, c, count), (None, None, None, ctypes.c_int))
    call(driver.cuLaunchKernel, function, 4, 1, 1, 256, 1, 1, 0, 0, values, 0)
    call(driver.cuMemcpyDtoH, ctypes.addressof(host), c, 4 * count)
    check_equal(list(host), [2.0 * i for i in range(count)], "sums")
    for pointer in (a, b, c):
        Linear.free(pointer)


class Timer:
    """GPU time between two events of a stream."""
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.events = [call(driver.cuEventCreate, 0) for _ in range(2)]
        call(driver.cuEventRecord, self.events[0], self.stream)
        return self

    def __exit__(self, *_):
        call(driver.cuEventRecord, self.events[1], self.stream)
        call(driver.cuEventSynchronize, self.events[1])
        self.milliseconds = call(driver.cuEventElapsedTime, *self.events)
        for event in self.events:
            call(driver.cuEventDestroy, event)


def check_time():
    module = call(driver.cuModuleLoadData, compiled(b"compute_80"))
    spin = call(driver.cuModuleGetFunction, module, b"spin")
    stream = call(driver.cuStreamCreate, 1)
    processors = call(driver.cuDeviceGetAttribute,
                      driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)

    def launch():
        call(driver.cuLaunchKernel, spin, 2 * processors, 1, 1, 1024, 1, 1, 0, stream, 0, 0)

    with Timer(stream) as timer:
        for _ in range(300):
            launch()
    check_pace("launches", timer.milliseconds, 300 * SPIN_MS)

    call(driver.cuStreamBeginCapture, stream,
         driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    for _ in range(10):
        launch()
    graph = call(driver.cuStreamEndCapture, stream)
    check_equal(call(driver.cuGraphGetNodes, graph, 100)[1], 10, "nodes of the graph")
    instance = call(driver.cuGraphInstantiate, graph, 0)
    with Timer(stream) as timer:
        for _ in range(30):
            call(driver.cuGraphLaunch, instance, stream)
    check_pace("graphs", timer.milliseconds, 300 * SPIN_MS)
    call(driver.cuGraphExecDestroy, instance)
    call(driver.cuGraphDestroy, graph)
    call(driver.cuStreamDestroy, stream)
    call(driver.cuModuleUnload, module)


def check_ipc():
    """Another process opens memory of this one, and the memory does not count twice."""
    size = 8 * MIB
    pointer = Linear.allocate(size)
    call(driver.cuMemsetD8, pointer, 5, size)
    free = free_memory()
    handle = call(driver.cuIpcGetMemHandle, pointer)
    handle = ctypes.string_at(handle.getPtr(), HANDLE_BYTES)
    with subprocess.Popen([sys.executable, __file__, "open", handle.hex()],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as opener:
        check_equal(opener.stdout.readline().strip(), "opened", "the other process")
        if LIMITED:  # the other process has a context, which does not count for the share
            check_equal(free_memory(), free, "free while another process has it open")
        opener.stdin.write("\n")
        opener.stdin.close()
        check_equal(opener.wait(), 0, "exit status of the other process")
    read = bytearray(1)
    call(driver.cuMemcpyDtoH, read, int(pointer) + size - 1, 1)
    check_equal(read[0], 6, "what the other process has written")
    Linear.free(pointer)


def open_memory(handle_bytes):
    start_cuda()
    handle = driver.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), handle_bytes, HANDLE_BYTES)
    flags = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
    pointer = call(driver.cuIpcOpenMemHandle, handle, flags.value)
    read = bytearray(1)
    call(driver.cuMemcpyDtoH, read, int(pointer) + 8 * MIB - 1, 1)
    check_equal(read[0], 5, "what the first process has written")
    call(driver.cuMemsetD8, int(pointer) + 8 * MIB - 1, 6, 1)
    print("opened", flush=True)
    sys.stdin.readline()
    call(driver.cuIpcCloseMemHandle, pointer)


def start_cuda():
    call(driver.cuInit, 0)
    device = call(driver.cuDeviceGet, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))
    return device


def main():
    device = start_cuda()
    check_views(device)
    for kind in (Linear, Managed, DefaultPool, OwnPool, Mapped, OfGraph):
        check_memory(kind)
    check_fill()
    check_module(b"compute_80")
    check_module(b"sm_80")
    check_library()
    check_ipc()
    check_time()
    call(driver.cuDevicePrimaryCtxRelease, device)
    print("cuda-bindings: memory, modules, graphs and IPC right")


if __name__ == "__main__":
    if sys.argv[1:2] == ["open"]:
        open_memory(bytes.fromhex(sys.argv[2]))
    else:
        main()
