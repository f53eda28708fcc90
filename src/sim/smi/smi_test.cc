// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "src/sim/nvml/test_node.h"
#include "src/sim/smi/log_tree.h"
#include "src/sim/smi/options.h"

namespace tessera::smi {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Output {
  int code;
  std::string text;
};

// The built program against the node that the environment names.
Output RunSmi(const std::string& arguments) {
  FILE* pipe = popen(("LD_LIBRARY_PATH=" SIM_NVML_DIR " " NVIDIA_SMI " " + arguments).c_str(), "r");
  Output output{-1, ""};
  if (pipe == nullptr) return output;
  char buffer[4096];
  size_t size = 0;
  while ((size = fread(buffer, 1, sizeof(buffer), pipe)) > 0) output.text.append(buffer, size);
  output.code = WEXITSTATUS(pclose(pipe));
  return output;
}

class SmiTest : public ::testing::Test {
 protected:
  SmiTest() { node_.Export(); }
  nvml::TestNode node_;
};

TEST_F(SmiTest, ListsGpusWithTheirUuids) {
  const Output output = RunSmi("-L");
  EXPECT_EQ(output.code, 0);
  EXPECT_THAT(output.text, StartsWith("GPU 0: NVIDIA A100-SXM4-80GB (UUID: "
                                      "GPU-12345678-1234-1234-1234-123456780000)\nGPU 1: "));
}

TEST_F(SmiTest, TableHasLinesOfOneLengthAndTheProcesses) {
  const nvml::GpuUser user(node_.state().dir(), 1, 1234ULL << 20);
  const Output output = RunSmi("");
  EXPECT_EQ(output.code, 0);
  EXPECT_THAT(output.text, HasSubstr("1234MiB /  81920MiB"));
  EXPECT_THAT(output.text, HasSubstr(std::to_string(user.pid()) + "      C   "));
  std::istringstream lines(output.text);
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with('|') && !line.starts_with('+')) continue;
    EXPECT_EQ(line.size(), 91u) << line;
  }
}

TEST_F(SmiTest, CsvHasUnitsAndHeaderUnlessToldOtherwise) {
  EXPECT_EQ(RunSmi("-i 0 --query-gpu=index,uuid,memory.total,fan.speed --format=csv").text,
            "index, uuid, memory.total [MiB], fan.speed [%]\n"
            "0, GPU-12345678-1234-1234-1234-123456780000, 81920 MiB, [N/A]\n");
  EXPECT_EQ(RunSmi("--id=0 --query-gpu=gpu_name,memory.total --format=csv,noheader,nounits").text,
            "NVIDIA A100-SXM4-80GB, 81920\n");
}

TEST_F(SmiTest, CsvRefusesUnknownFieldsInTheToolsWords) {
  const Output output = RunSmi("--query-gpu=index,colour --format=csv");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.text, "Field \"colour\" is not a valid field to query.\n\n");
}

TEST_F(SmiTest, CsvListsComputeApps) {
  const nvml::GpuUser user(node_.state().dir(), 2, 5ULL << 20);
  const Output output =
      RunSmi("--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader");
  EXPECT_EQ(output.text, "GPU-12345678-1234-1234-1234-123456780002, " +
                             std::to_string(user.pid()) + ", 5 MiB\n");
}

TEST_F(SmiTest, SelectsByIndexUuidAndBusId) {
  for (const char* id : {"1", "GPU-12345678-1234-1234-1234-123456780001", "00000000:0F:00.0",
                         "0000:0f:00.0"}) {
    const Output output = RunSmi(std::string("--query-gpu=index --format=csv,noheader -i ") + id);
    EXPECT_EQ(output.text, "1\n") << id;
  }
  const Output none = RunSmi("-L -i 7");
  EXPECT_EQ(none.code, 6);
  EXPECT_EQ(none.text, "No devices were found\n");
}

TEST_F(SmiTest, XmlIsBalancedAndHoldsWhatTelegrafReads) {
  const nvml::GpuUser user(node_.state().dir(), 0, 7ULL << 20);
  const Output output = RunSmi("-q -x");
  EXPECT_EQ(output.code, 0);
  EXPECT_THAT(output.text, HasSubstr("<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">"));
  for (const char* tag : {"<product_name>NVIDIA A100-SXM4-80GB</product_name>",
                          "<gpu_temp>30 C</gpu_temp>", "<used>7 MiB</used>",
                          "<gpu_util>0 %</gpu_util>", "<pcie_gen>", "<process_info>"}) {
    EXPECT_THAT(output.text, HasSubstr(tag));
  }
  size_t opened = 0;
  size_t closed = 0;
  for (size_t i = 0; (i = output.text.find('<', i)) != std::string::npos; ++i) {
    const char next = output.text[i + 1];
    if (next == '/') ++closed;
    if (next != '/' && next != '?' && next != '!') ++opened;
  }
  EXPECT_EQ(opened, closed);
}

TEST_F(SmiTest, TopologyCountsNvLinks) {
  const Output output = RunSmi("topo -m");
  EXPECT_THAT(output.text, HasSubstr("GPU0\t X \tNV4\tSYS\tSYS\t"));
}

TEST_F(SmiTest, SaysWhyThereIsNothingToShow) {
  for (int minor = 0; minor < 4; ++minor) node_.RemoveDeviceNode(minor);
  const Output empty = RunSmi("");
  EXPECT_EQ(empty.code, 6);
  EXPECT_EQ(empty.text, "No devices were found\n");
  setenv("SIMGPU_STATE_DIR", "/nonexistent", 1);
  const Output none = RunSmi("");
  EXPECT_EQ(none.code, 9);
  EXPECT_THAT(none.text, StartsWith("NVIDIA-SMI has failed because it couldn't communicate with "
                                    "the NVIDIA driver."));
}

TEST_F(SmiTest, ALostGpuIsReportedAndTheOthersShown) {
  node_.state().live(0).lost = 1;
  const Output output = RunSmi("-L");
  EXPECT_EQ(output.code, 15);
  EXPECT_THAT(output.text, HasSubstr("Unable to determine the device handle for GPU0: GPU is lost"));
  EXPECT_THAT(output.text, HasSubstr("GPU 3: "));
}

TEST_F(SmiTest, SetsComputeModeForRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may change modes";
  EXPECT_EQ(RunSmi("-i 1 -c EXCLUSIVE_PROCESS").code, 0);
  EXPECT_EQ(RunSmi("-i 1 --query-gpu=compute_mode --format=csv,noheader").text,
            "Exclusive_Process\n");
}

TEST(SmiOptionsTest, RefusesWhatItDoesNotKnow) {
  Options options;
  std::string error;
  EXPECT_FALSE(ParseOptions({"--colour"}, &options, &error));
  EXPECT_THAT(error, HasSubstr("--colour"));
  EXPECT_FALSE(ParseOptions({"-x"}, &options, &error));
  EXPECT_FALSE(ParseOptions({"--query-gpu=name"}, &options, &error));
  EXPECT_FALSE(ParseOptions({"-i"}, &options, &error));
}

TEST(SmiLogTest, TextAlignsAndXmlEscapes) {
  std::string text;
  AppendText({"Name", "name", "a<b"}, 1, &text);
  EXPECT_EQ(text, "    Name                                  : a<b\n");
  std::string xml;
  AppendXml({"Name", "name", "a<b"}, 1, &xml);
  EXPECT_EQ(xml, "\t<name>a&lt;b</name>\n");
}

}  // namespace
}  // namespace tessera::smi
