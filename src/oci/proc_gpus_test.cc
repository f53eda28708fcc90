// SPDX-License-Identifier: Apache-2.0
#include "src/oci/proc_gpus.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::oci {
namespace {

constexpr char kInfo[] =
    "Model: \t\t NVIDIA A100-SXM4-80GB\n"
    "IRQ:   \t\t 42\n"
    "GPU UUID: \t GPU-12345678-1234-1234-1234-123456780007\n"
    "Video BIOS: \t 92.00.45.00.03\n"
    "Bus Type: \t PCIe\n"
    "Bus Location: \t 0000:bd:00.0\n"
    "Device Minor: \t 7\n"
    "GPU Excluded:\t No\n";

TEST(ProcGpusTest, ReadsTheKernelModulesFormat) {
  const ProcGpu gpu = ParseProcGpu("0000:bd:00.0", kInfo);
  EXPECT_EQ(gpu.bus_id, "0000:bd:00.0");
  EXPECT_EQ(gpu.uuid, "GPU-12345678-1234-1234-1234-123456780007");
  EXPECT_EQ(gpu.model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpu.minor, 7);
}

TEST(ProcGpusTest, AGpuThatWasNotInitializedHasNoUuid) {
  EXPECT_TRUE(ParseProcGpu("0", kInfo).HasUuid());
  const std::string marks(8, '?');
  EXPECT_FALSE(
      ParseProcGpu("0", "GPU UUID: \t GPU-" + marks + "-0000-0000-0000-000000000000\n").HasUuid());
  EXPECT_FALSE(ParseProcGpu("0", "Model: x\n").HasUuid());
  EXPECT_FALSE(ParseProcGpu("0", "").HasUuid());
}

TEST(ProcGpusTest, AnInvalidMinorIsOmitted) {
  for (const char* text : {"", "Device Minor: 255x", "Device Minor: -1", "Device Minor: 1048576",
                           "Device Minor: 99999999999999999999"}) {
    EXPECT_EQ(ParseProcGpu("0", text).minor, std::nullopt) << text;
  }
  EXPECT_EQ(ParseProcGpu("0", std::string(1000, '\0')).uuid, "");
}

TEST(ProcGpusTest, ListsGpusByPciAddress) {
  const TempDir proc;
  const auto write = [&](const std::string& file, const std::string& text) {
    const std::string path = proc.path() + "/driver/nvidia/gpus/" + file;
    ASSERT_TRUE(MakeDirs(DirName(path)).ok());
    ASSERT_TRUE(WriteFileAtomically(path, text, 0644).ok());
  };
  write("0000:bd:00.0/information", kInfo);
  write("0000:07:00.0/information", "GPU UUID: GPU-12345678-1234-1234-1234-123456780000\n");
  write("0000:08:00.0/other", "");
  const auto gpus = ReadProcGpus(proc.path());
  ASSERT_TRUE(gpus.ok()) << gpus.status().ToString();
  ASSERT_EQ(gpus->size(), 3u);
  EXPECT_EQ((*gpus)[0].uuid, "GPU-12345678-1234-1234-1234-123456780000");
  EXPECT_EQ((*gpus)[1].bus_id, "0000:08:00.0") << "this GPU has no file named information";
  EXPECT_EQ((*gpus)[2].minor, 7);
  EXPECT_EQ(ReadProcGpus(proc.path() + "/nowhere").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tessera::oci
