// SPDX-License-Identifier: Apache-2.0
#include "src/device/model.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

TEST(ModelTest, NamesTheChipOfEveryProduct) {
  const struct {
    const char* product;
    const char* model;
  } kCases[] = {
      {"Tesla T4", "T4"},
      {"Tesla M40 24GB", "M40"},
      {"Tesla V100-SXM2-16GB", "V100"},
      {"Tesla P100-PCIE-16GB", "P100"},
      {"NVIDIA A10", "A10"},
      {"NVIDIA A10G", "A10G"},
      {"NVIDIA A100-SXM4-80GB", "A100"},
      {"NVIDIA A100 80GB PCIe", "A100"},
      {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100"},
      {"NVIDIA H100 80GB HBM3", "H100"},
      {"NVIDIA H100 NVL", "H100"},
      {"NVIDIA H200", "H200"},
      {"NVIDIA GH200 144G HBM3e", "GH200"},
      {"NVIDIA B200", "B200"},
      {"NVIDIA L40S", "L40S"},
      {"NVIDIA GeForce RTX 3090", "RTX-3090"},
      {"NVIDIA GeForce RTX 4090 Laptop GPU", "RTX-4090"},
      {"GeForce GTX 1080 Ti", "GTX-1080-Ti"},
      {"GeForce GTX 980M", "GTX-980M"},
      {"NVIDIA GeForce GTX 1060 6GB", "GTX-1060"},
      {"Quadro RTX 6000", "RTX-6000"},
      {"NVIDIA RTX A6000", "RTX-A6000"},
      {"NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"},
      {"NVIDIA TITAN V", "TITAN-V"},
      {"GRID T4-16Q", "T4"},
      // Unknown products get a name, too.
      {"NVIDIA Graphics Device", "Graphics-Device"},
      {"NVIDIA", "NVIDIA"},
      {"NVIDIA X9000-SXM9-2048GB", "X9000"},
      {"Vendor (R) Fast/2", "Vendor-R-Fast2"},
      {"--", ""},
      {"", ""},
  };
  for (const auto& test : kCases) EXPECT_EQ(ShortModel(test.product), test.model) << test.product;
}

TEST(ModelTest, LabelsAreValidForEveryProduct) {
  EXPECT_EQ(ProductLabel("NVIDIA A100-SXM4-80GB"), "NVIDIA-A100-SXM4-80GB");
  EXPECT_EQ(ProductLabel(" (x) y. "), "x-y");
  EXPECT_EQ(ProductLabel(std::string(200, 'x')), std::string(63, 'x'));
  EXPECT_EQ(ProductLabel(std::string(62, 'x') + "-y"), std::string(62, 'x'));
}

TEST(ModelTest, TheGpuManagerModelIsTheSecondOfThreeOrMoreWords) {
  EXPECT_EQ(GpuManagerModel("Tesla M40 24GB"), "M40");
  EXPECT_EQ(GpuManagerModel("NVIDIA GeForce RTX 3090"), "GeForce");
  EXPECT_EQ(GpuManagerModel("NVIDIA A100-SXM4-80GB"), "");
  EXPECT_EQ(GpuManagerModel("Tesla T4"), "");
  EXPECT_EQ(GpuManagerModel(""), "");
}

TEST(ModelTest, MatchesEachNameOfAProductInAnyCase) {
  constexpr std::string_view kProduct = "NVIDIA A100-SXM4-80GB";
  for (const char* wanted : {"A100", "a100", "NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"}) {
    EXPECT_TRUE(MatchesModel(kProduct, wanted)) << wanted;
  }
  for (const char* wanted : {"A10", "A1000", "A100-SXM4", "NVIDIA", ""}) {
    EXPECT_FALSE(MatchesModel(kProduct, wanted)) << wanted;
  }
  EXPECT_TRUE(MatchesModel("Tesla M40 24GB", "M40"));
  EXPECT_FALSE(MatchesModel("", ""));
}

TEST(ModelTest, AProductLabelKeepsValidCharacters) {
  EXPECT_EQ(ProductLabel("Tesla T4"), "Tesla-T4");
  EXPECT_EQ(ProductLabel("NVIDIA RTX(TM) A6000/48\xc2\xae "), "NVIDIA-RTXTM-A600048");
  EXPECT_EQ(ProductLabel(" -x- "), "x");
  EXPECT_EQ(ProductLabel(std::string(100, 'a')).size(), 63u);
  EXPECT_EQ(ProductLabel("()"), "");
  EXPECT_EQ(ProductLabel("az_AZ.09"), "az_AZ.09");
  EXPECT_EQ(ProductLabel("z"), "z");
  EXPECT_EQ(ProductLabel("Z"), "Z");
}

}  // namespace
}  // namespace tessera::device
