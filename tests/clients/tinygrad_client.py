# SPDX-License-Identifier: Apache-2.0
"""tinygrad, as from PyPI, with NVIDIA's NVRTC: training by recorded graphs, and its MemoryError.

Run by run.py, with the whole GPU or with a share of it. The simulated GPU computes none of its
kernels, so no test reads the results of the kernels.
"""
import time

from tinygrad import Device, Tensor, TinyJit, dtypes, nn
from tinygrad.helpers import Context, GlobalCounters

from facts import (FACTS, LARGE, LIMITED, MIB, check, check_equal, device_bytes, expect_error,
                   wait_for_sample)

KERNEL_SECONDS = 0.001  # the value in $SIMGPU_KERNEL_NS


class Net:
    def __init__(self):
        self.first = nn.Linear(784, 128)
        self.second = nn.Linear(128, 10)

    def __call__(self, x):
        return self.second(self.first(x).relu())


def check_copies():
    values = list(range(1000))
    there = Tensor(values, dtype=dtypes.int).realize()
    check_equal(there.tolist(), values, "values there and back")


def zeros(size):
    return Tensor.zeros(size, dtype=dtypes.uint8).contiguous().realize()


def check_memory():
    zeros(2 * MIB)
    used = device_bytes()
    tensor = zeros(LARGE)
    check_equal(device_bytes() - used, LARGE, "used of the device")
    for _ in range(2):
        expect_error(MemoryError, zeros, LARGE)
    check_copies()  # the program goes on
    wait_for_sample()
    check(device_bytes() - used <= LARGE + 2 * MIB, "refused memory is not held")
    del tensor
    zeros(LARGE)  # tinygrad keeps freed memory, and gives it back for this allocation
    check(device_bytes() - used <= LARGE + 2 * MIB, "freed memory is not held")
    Device[Device.DEFAULT].allocator.free_cache()


def check_training():
    """Steps that tinygrad records as a graph at the second call, for launches with other inputs."""
    net = Net()
    optimizer = nn.optim.SGD(nn.state.get_parameters(net), lr=0.01)

    @TinyJit
    def step(x, y):
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    def train(steps):
        for _ in range(steps):
            step(Tensor.rand(32, 784).realize(), Tensor.randint(32, high=10).realize())
        Device[Device.DEFAULT].synchronize()

    train(3)
    GlobalCounters.reset()
    start = time.monotonic()
    train(20)
    took, kernels = time.monotonic() - start, GlobalCounters.kernel_count
    check(kernels >= 100, f"{kernels} kernels")
    if LIMITED:
        # The time may be shorter, because the limiter lends some GPU time at the start. An upper
        # limit would depend on the machine, so there is none.
        wanted = kernels * KERNEL_SECONDS / FACTS["compute"]
        check(took >= 0.8 * wanted, f"{kernels} kernels took {took:.2f} s, not {wanted:.2f} s")


def main():
    check_equal(Device.DEFAULT, "CUDA", "the device that tinygrad chose")
    check_copies()
    check_memory()
    with Context(TRAINING=1):
        check_training()
    print("tinygrad: copies, memory and training right")


if __name__ == "__main__":
    main()
