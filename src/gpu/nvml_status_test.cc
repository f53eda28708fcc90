// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/nvml_status.h"

#include <gtest/gtest.h>

#include "api/nvml_abi.h"

namespace tessera::gpu {
namespace {

TEST(NvmlErrorNameTest, DistinguishesErrorsThatShareACode) {
  const auto name = [](nvml::Return result) {
    return NvmlErrorName(NvmlStatus(NvmlCall::kName, static_cast<int>(result)));
  };
  EXPECT_EQ(name(nvml::Return::kGpuIsLost), "GPU_IS_LOST");
  EXPECT_EQ(name(nvml::Return::kResetRequired), "RESET_REQUIRED");
  EXPECT_EQ(name(nvml::Return::kNotFound), "NOT_FOUND");
  EXPECT_EQ(name(nvml::Return::kGpuNotFound), "GPU_NOT_FOUND");
  EXPECT_EQ(name(nvml::Return::kUnknown), "UNKNOWN");
}

TEST(NvmlErrorNameTest, ErrorsWithASpecificMessageHaveTheirNvmlName) {
  for (const nvml::ReturnName& known : nvml::kReturnNames) {
    const Status status = NvmlStatus(NvmlCall::kInit, static_cast<int>(known.value));
    if (status.message().find("NVML error") != std::string::npos) continue;
    EXPECT_EQ(NvmlErrorName(status.Annotate("GPU 3")), known.name);
  }
}

TEST(NvmlErrorNameTest, OtherErrorsAreNamedByTheirCode) {
  EXPECT_EQ(NvmlErrorName(Status(Code::kNotFound, "libnvidia-ml.so.1 is not below /")),
            "NOT_FOUND");
  EXPECT_EQ(NvmlErrorName(NvmlStatus(NvmlCall::kInit, 777)), "UNKNOWN");
}

}  // namespace
}  // namespace tessera::gpu
