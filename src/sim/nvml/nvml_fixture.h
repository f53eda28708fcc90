// SPDX-License-Identifier: Apache-2.0
// A test that calls libnvidia-ml.so.1 on a simulated node. For tests only.
#pragma once

#include <gtest/gtest.h>

#include "src/sim/nvml/test_node.h"

namespace tessera::nvml {

class NvmlTest : public ::testing::Test {
 protected:
  NvmlTest() { node_.Export(); }
  ~NvmlTest() override {
    while (NVML(nvmlShutdown)() == Return::kSuccess) {
    }
  }

  void Init() { ASSERT_EQ(NVML(nvmlInit_v2)(), Return::kSuccess); }
  Device Handle(unsigned index) {
    Device device = nullptr;
    EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(index, &device), Return::kSuccess);
    return device;
  }
  // To be changed before Init.
  sim::GpuFacts& Facts(unsigned gpu) { return node_.state().file().facts[gpu]; }
  // The same node with GPUs of another architecture.
  void Become(Architecture architecture) {
    for (std::uint32_t gpu = 0; gpu < node_.state().gpu_count(); ++gpu) {
      Facts(gpu).architecture = architecture;
      if (architecture < kArchAmpere) Facts(gpu).row_banks = 0;
    }
  }

  TestNode node_;
};

}  // namespace tessera::nvml
