// SPDX-License-Identifier: Apache-2.0
// For tests: a fixture that calls libnvidia-ml.so.1 on a simulated node.
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
  // A test may change the facts before it calls Init.
  sim::GpuFacts& Facts(unsigned gpu) { return node_.state().file().facts[gpu]; }
  // Changes the architecture of all GPUs.
  void SetArchitecture(Architecture architecture) {
    for (std::uint32_t gpu = 0; gpu < node_.state().gpu_count(); ++gpu) {
      Facts(gpu).architecture = architecture;
      if (architecture < kArchAmpere) Facts(gpu).row_banks = 0;
    }
  }

  TestNode node_;
};

}  // namespace tessera::nvml
