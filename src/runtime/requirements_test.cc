// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requirements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::runtime {
namespace {

using ::testing::HasSubstr;

NodeFacts Node() {
  return {.cuda = "12.4",
          .driver = "550.54.15",
          .gpus = {{"GPU-a", "8.0", "nvidia"}, {"GPU-b", "7.5", "tesla"}}};
}

Status Check(const std::string& requirement) {
  return CheckRequirements({{"NVIDIA_REQUIRE_CUDA", requirement}}, Node());
}

TEST(Requirements, SupportsEveryOperator) {
  for (const char* holds :
       {"cuda>=12.4", "cuda<=12.4", "cuda=12.4", "cuda>12.3", "cuda<13.0", "cuda!=12.3",
        "driver>=550", "driver<551", "arch>=7.5", "brand!=titan"}) {
    EXPECT_TRUE(Check(holds).ok()) << holds;
  }
  for (const char* fails : {"cuda>=12.10", "cuda<12.4", "cuda=12", "cuda>12.4", "cuda!=12.4",
                            "driver>550.54.15", "driver<550", "arch>=8.0", "brand=nvidia"}) {
    EXPECT_EQ(Check(fails).code(), Code::kFailedPrecondition) << fails;
  }
}

TEST(Requirements, SpaceIsOrAndCommaIsAnd) {
  EXPECT_TRUE(Check("cuda>=13.0 driver>=550,driver<551").ok());
  EXPECT_FALSE(Check("cuda>=13.0 driver>=550,driver<550").ok());
  // Each GPU may satisfy another alternative.
  EXPECT_TRUE(Check("brand=nvidia brand=tesla").ok());
  EXPECT_TRUE(Check("").ok());
}

TEST(Requirements, TheErrorNamesConditionFoundValueAndGpu) {
  const std::string message = Check("arch>=8.0,cuda>=12.0").message();
  EXPECT_THAT(message, HasSubstr("NVIDIA_REQUIRE_CUDA"));
  EXPECT_THAT(message, HasSubstr("arch>=8.0 (found arch 7.5)"));
  EXPECT_THAT(message, HasSubstr("GPU-b"));
  EXPECT_THAT(message, HasSubstr("NVIDIA_DISABLE_REQUIRE"));
}

TEST(Requirements, InvalidConditionIsRejectedAtAnyPosition) {
  for (const char* bad :
       {"cuda", "cuda>=", ">=12", "speed>=3", "brand>tesla", "cuda>=x.y", "cuda>=1 nonsense"}) {
    EXPECT_EQ(Check(bad).code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Requirements, WithoutGpusOnlyConditionsOnTheDriverCanFail) {
  NodeFacts facts = Node();
  facts.gpus.clear();
  const auto check = [&facts](const std::string& requirement) {
    return CheckRequirements({{"X", requirement}}, facts).code();
  };
  for (const char* holds : {"cuda>=12.0", "arch>=7.0", "arch<1.0", "brand=tesla", "brand!=unknown",
                            "brand=tesla,driver>=550"}) {
    EXPECT_EQ(check(holds), Code::kOk) << holds;
  }
  EXPECT_EQ(check("cuda>=13.0"), Code::kFailedPrecondition);
  EXPECT_EQ(check("brand=tesla,driver>=551"), Code::kFailedPrecondition);
  EXPECT_EQ(check("arch>=x"), Code::kInvalidArgument);
  EXPECT_EQ(check("brand>tesla"), Code::kInvalidArgument);
}

TEST(Requirements, InvalidValueIsRejectedEvenIfTheNodesValueIsUnknown) {
  NodeFacts facts = Node();
  facts.cuda.clear();
  EXPECT_EQ(CheckRequirements({{"X", "cuda>=x"}}, facts).code(), Code::kInvalidArgument);
  EXPECT_EQ(CheckRequirements({{"X", "cuda>=12.0"}}, facts).code(), Code::kFailedPrecondition);
}

TEST(GpuModels, KnowsCommonModelsAndDrivers) {
  EXPECT_EQ(ArchOfModel("Tesla T4"), "7.5");
  EXPECT_EQ(ArchOfModel("NVIDIA A100-SXM4-80GB"), "8.0");
  EXPECT_EQ(ArchOfModel("NVIDIA H100 80GB HBM3"), "9.0");
  EXPECT_EQ(ArchOfModel("NVIDIA H200"), "9.0");
  EXPECT_EQ(ArchOfModel("NVIDIA GeForce RTX 4090"), "8.9");
  EXPECT_EQ(ArchOfModel("NVIDIA RTX 6000 Ada Generation"), "8.9");
  EXPECT_EQ(ArchOfModel("Voodoo 2"), "");
  EXPECT_EQ(BrandOfModel("Tesla T4"), "tesla");
  EXPECT_EQ(BrandOfModel("NVIDIA A100-SXM4-80GB"), "nvidia");
  EXPECT_EQ(BrandOfModel("NVIDIA GeForce RTX 4090"), "geforcertx");
  EXPECT_EQ(BrandOfModel(""), "unknown");
  EXPECT_EQ(CudaOfDriver("550.54.15"), "12.4");
  EXPECT_EQ(CudaOfDriver("535.183.01"), "12.2");
  EXPECT_EQ(CudaOfDriver("580.65"), "13.0");
  EXPECT_EQ(CudaOfDriver("1.2"), "");
  EXPECT_EQ(CudaOfDriver("x"), "");
}

}  // namespace
}  // namespace tessera::runtime
