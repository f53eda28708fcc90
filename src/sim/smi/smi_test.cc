// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
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

// Runs the built program on the node of the environment.
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

TEST_F(SmiTest, TheTableHasLinesOfEqualLengthAndListsProcesses) {
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

TEST_F(SmiTest, CsvHasUnitsAndHeaderByDefault) {
  EXPECT_EQ(RunSmi("-i 0 --query-gpu=index,uuid,memory.total,fan.speed --format=csv").text,
            "index, uuid, memory.total [MiB], fan.speed [%]\n"
            "0, GPU-12345678-1234-1234-1234-123456780000, 81920 MiB, [N/A]\n");
  EXPECT_EQ(RunSmi("--id=0 --query-gpu=gpu_name,memory.total --format=csv,noheader,nounits").text,
            "NVIDIA A100-SXM4-80GB, 81920\n");
}

TEST_F(SmiTest, CsvRefusesUnknownFieldsWithTheToolsMessage) {
  const Output output = RunSmi("--query-gpu=index,colour --format=csv");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.text, "Field \"colour\" is not a valid field to query.\n\n");
}

TEST_F(SmiTest, CsvListsComputeApps) {
  const nvml::GpuUser user(node_.state().dir(), 2, 5ULL << 20);
  const Output output =
      RunSmi("--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader");
  EXPECT_EQ(output.text, "GPU-12345678-1234-1234-1234-123456780002, " + std::to_string(user.pid()) +
                             ", 5 MiB\n");
}

TEST_F(SmiTest, SelectsByIndexUuidAndBusId) {
  for (const char* id :
       {"1", "GPU-12345678-1234-1234-1234-123456780001", "00000000:0F:00.0", "0000:0f:00.0"}) {
    const Output output = RunSmi(std::string("--query-gpu=index --format=csv,noheader -i ") + id);
    EXPECT_EQ(output.text, "1\n") << id;
  }
  const Output none = RunSmi("-L -i 7");
  EXPECT_EQ(none.code, 6);
  EXPECT_EQ(none.text, "No devices were found\n");
}

TEST_F(SmiTest, XmlIsBalancedAndHasTheElementsForTelegraf) {
  const nvml::GpuUser user(node_.state().dir(), 0, 7ULL << 20);
  const Output output = RunSmi("-q -x");
  EXPECT_EQ(output.code, 0);
  EXPECT_THAT(output.text, HasSubstr("<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">"));
  for (const char* tag :
       {"<product_name>NVIDIA A100-SXM4-80GB</product_name>", "<gpu_temp>30 C</gpu_temp>",
        "<used>7 MiB</used>", "<gpu_util>0 %</gpu_util>", "<pcie_gen>", "<process_info>",
        "<encoder_stats>", "<session_count>0</session_count>",
        "<reset_required>No</reset_required>"}) {
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

TEST_F(SmiTest, P2pMatrixNamesMissingCapabilities) {
  EXPECT_THAT(RunSmi("topo -p2p n").text,
              StartsWith("\tGPU0\tGPU1\tGPU2\tGPU3\t\n GPU0\tX\tOK\tNS\tNS\t\n"));
  EXPECT_THAT(RunSmi("topo -p2p rn -i 0,2").text, StartsWith("\tGPU0\tGPU2\t\n GPU0\tX\tCNS\t\n"));
  EXPECT_EQ(RunSmi("topo -p2p x").code, 2);
}

TEST_F(SmiTest, NvLinkShowsEachLinkOfEachGpu) {
  const std::string status = RunSmi("nvlink -s -i 1").text;
  EXPECT_THAT(status, StartsWith("GPU 1: NVIDIA A100-SXM4-80GB (UUID: "
                                 "GPU-12345678-1234-1234-1234-123456780001)\n"
                                 "\t Link 0: 25 GB/s\n"));
  EXPECT_THAT(status, HasSubstr("\t Link 4: <inactive>\n"));
  EXPECT_THAT(RunSmi("nvlink --capabilities -i 0").text,
              HasSubstr("\t Link 3, P2P is supported: true\n"));
  EXPECT_THAT(RunSmi("nvlink -e -i 0").text, HasSubstr("\t Link 0: CRC Errors: 0\n\n"));
  for (std::uint32_t gpu = 0; gpu < 4; ++gpu) node_.image().facts[gpu].nvlink_count = 0;
  node_.Write();
  EXPECT_EQ(RunSmi("nvlink -s").text, "");
}

TEST_F(SmiTest, DeviceMonitorHasTheChosenColumns) {
  node_.state().gpu_state(2).utilization_gpu = 60;
  EXPECT_EQ(RunSmi("dmon -c 1 -s uc -i 2").text,
            "# gpu     sm    mem    enc    dec    jpg    ofa   mclk   pclk \n"
            "# Idx      %      %      %      %      %      %    MHz    MHz \n"
            "    2     60     30      0      0      0      0   1593   1410 \n");
  EXPECT_THAT(RunSmi("dmon -c 1 -o T").text, StartsWith("#Time        gpu    pwr  gtemp"));
  EXPECT_EQ(RunSmi("dmon -s z").code, 2);
  EXPECT_EQ(RunSmi("dmon -d 11").code, 2);
}

TEST_F(SmiTest, DeviceMonitorRepeatsLinesButNotTheHeader) {
  const std::string text = RunSmi("dmon --count=2 --delay 1 -s e -i 0").text;
  constexpr std::string_view kLine = "    0      0      0      0 \n";
  EXPECT_THAT(text, ::testing::EndsWith(fmt::format(" \n{}{}", kLine, kLine)));
  EXPECT_EQ(std::count(text.begin(), text.end(), '#'), 2);
}

TEST_F(SmiTest, ProcessMonitorNamesTheProcesses) {
  const nvml::GpuUser user(node_.state().dir(), 1, 5ULL << 20);
  const std::string text = RunSmi("pmon -c 1 -s um").text;
  EXPECT_THAT(text, StartsWith("# gpu         pid   type     sm    mem    enc    dec    jpg    ofa "
                               "    fb   ccpm    command \n"));
  // NVML has no sample of a process that does not use the GPU.
  EXPECT_THAT(text, HasSubstr(fmt::format("    1 {:>10}     C      -      -      -      -      - "
                                          "     -      5      0    smi_test       \n",
                                          user.pid())));
  EXPECT_THAT(text, HasSubstr("    0          -     -      -"));
}

TEST_F(SmiTest, CsvHasMemoryErrors) {
  node_.state().gpu_state(0).ecc_uncorrected_volatile = 2;
  node_.state().gpu_state(0).remapped_uncorrected = 1;
  node_.state().gpu_state(0).remapped_pending = 1;
  EXPECT_EQ(RunSmi("-i 0 --format=csv,noheader --query-gpu=ecc.errors.uncorrected.volatile.dram,"
                   "ecc.errors.uncorrected.volatile.total,ecc.errors.corrected.volatile.l1_cache,"
                   "remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure,"
                   "remapped_rows.histogram.max,retired_pages.sbe,retired_pages.pending")
                .text,
            "2, 2, [N/A], 1, Yes, No, 639, [N/A], [N/A]\n");
}

TEST_F(SmiTest, LogShowsThatAGpuNeedsAReset) {
  node_.state().gpu_state(1).recovery_action = nvml::kRecoveryResetGpu;
  EXPECT_THAT(RunSmi("-q -i 1 -d RESET_STATUS").text,
              HasSubstr("    GPU Reset Status\n"
                        "        Reset Required                    : Yes\n"
                        "        Drain and Reset Recommended       : No\n"));
}

TEST_F(SmiTest, CsvListsRemappedRowsAndRetiredPages) {
  node_.image().gpu_states[1].remapped_uncorrected = 4;
  node_.image().facts[2].row_banks = 0;
  node_.image().gpu_states[2].retired_corrected = 1;
  node_.image().gpu_states[2].retired_uncorrected = 1;
  node_.Write();
  EXPECT_EQ(RunSmi("-i 1,2 --format=csv --query-remapped-rows=gpu_bus_id,"
                   "remapped_rows.uncorrectable,remapped_rows.failure")
                .text,
            "gpu_bus_id, remapped_rows.uncorrectable, remapped_rows.failure\n"
            "00000000:0F:00.0, 4, No\n00000000:17:00.0, [N/A], [N/A]\n");
  EXPECT_EQ(RunSmi("--format=csv --query-retired-pages=gpu_bus_id,retired_pages.address,"
                   "retired_pages.cause")
                .text,
            "gpu_bus_id, retired_pages.address, retired_pages.cause\n"
            "00000000:17:00.0, 0x0000000009e37000, Single Bit ECC\n"
            "00000000:17:00.0, 0x0000000013c6e000, Double Bit ECC\n");
  EXPECT_THAT(RunSmi("--help-query-retired-pages").text, HasSubstr("\"retired_pages.cause\"\n"));
  EXPECT_EQ(RunSmi("--query-retired-pages=colour --format=csv").code, 2);
}

TEST_F(SmiTest, CsvListsSupportedClocks) {
  node_.image().facts[0].clock_graphics_idle = 1380;
  node_.Write();
  EXPECT_EQ(RunSmi("-i 0 --format=csv --query-supported-clocks=mem,gr").text,
            "memory [MHz], graphics [MHz]\n1593 MHz, 1410 MHz\n1593 MHz, 1395 MHz\n"
            "1593 MHz, 1380 MHz\n");
}

TEST_F(SmiTest, CsvKnowsOldAndNewNamesOfEventReasons) {
  node_.state().gpu_state(0).temperature_c = 95;
  EXPECT_EQ(RunSmi("-i 0 --format=csv --query-gpu=clocks_throttle_reasons.hw_thermal_slowdown,"
                   "clocks_event_reasons.active,driver_model.current,temperature.gpu.tlimit")
                .text,
            "clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.active, "
            "driver_model.current, temperature.gpu.tlimit\n"
            "Active, 0x0000000000000049, [N/A], [N/A]\n");
}

TEST_F(SmiTest, LogShowsRemappedRowsOrRetiredPages) {
  node_.image().facts[1].row_banks = 0;
  node_.image().gpu_states[1].retired_uncorrected = 3;
  node_.Write();
  const std::string rows = RunSmi("-q -i 0 -d ROW_REMAPPER,PAGE_RETIREMENT").text;
  EXPECT_THAT(rows, HasSubstr("            Max                           : 640 bank(s)\n"));
  EXPECT_THAT(rows, HasSubstr("        Double Bit ECC                    : N/A\n"));
  const std::string pages = RunSmi("-q -i 1 -d ROW_REMAPPER,PAGE_RETIREMENT").text;
  EXPECT_THAT(pages, HasSubstr("    Remapped Rows                         : N/A\n"));
  EXPECT_THAT(pages, HasSubstr("        Double Bit ECC                    : 3\n"));
  EXPECT_THAT(RunSmi("-q -x -i 1").text, HasSubstr("<retired_count>3</retired_count>"));
}

TEST_F(SmiTest, ExplainsAMissingDriver) {
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

TEST_F(SmiTest, ALostGpuIsReportedAndOtherGpusAreShown) {
  node_.state().gpu_state(0).lost = 1;
  const Output output = RunSmi("-L");
  EXPECT_EQ(output.code, 15);
  EXPECT_THAT(output.text,
              HasSubstr("Unable to determine the device handle for GPU0: GPU is lost"));
  EXPECT_THAT(output.text, HasSubstr("GPU 3: "));
}

TEST_F(SmiTest, SetsComputeModeForRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may change modes";
  EXPECT_EQ(RunSmi("-i 1 -c EXCLUSIVE_PROCESS").code, 0);
  EXPECT_EQ(RunSmi("-i 1 --query-gpu=compute_mode --format=csv,noheader").text,
            "Exclusive_Process\n");
}

TEST_F(SmiTest, SetsPowerLimitAndClocksForRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may change settings";
  EXPECT_EQ(RunSmi("-i 1 -pl 250.5").text,
            "Power limit for GPU 00000000:0F:00.0 was set to 250.50 W from 400.00 W.\nAll done.\n");
  EXPECT_EQ(RunSmi("-i 1 --lock-gpu-clocks=900,1000").text,
            "GPU clocks set to \"(gpuClkMin 900, gpuClkMax 1000)\" for GPU 00000000:0F:00.0\n"
            "All done.\n");
  EXPECT_EQ(RunSmi("-i 1 -e 0").code, 0);
  EXPECT_EQ(RunSmi("-i 1 --format=csv,noheader,nounits "
                   "--query-gpu=power.limit,clocks.sm,ecc.mode.current,ecc.mode.pending")
                .text,
            "250.50, 900, Enabled, Disabled\n");
  EXPECT_EQ(RunSmi("-i 1 -rgc").code, 0);
  EXPECT_EQ(RunSmi("-i 1 --query-gpu=clocks.sm --format=csv,noheader").text, "210 MHz\n");
}

TEST_F(SmiTest, NamesTheValidRangeOfAPowerLimit) {
  const Output output = RunSmi("-i 0 -pl 500");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.text, StartsWith("Provided power limit 500.00 W is not a valid power limit "
                                      "which should be between 100.00 W and 400.00 W for GPU "
                                      "00000000:07:00.0\n"));
  EXPECT_EQ(RunSmi("-pl many").text, "Invalid value \"many\" for \"-pl\".\n");
}

TEST(SmiOptionsTest, RefusesUnknownArguments) {
  SmiOptions options;
  std::string error;
  EXPECT_FALSE(ParseOptions({"--colour"}, &options, &error));
  EXPECT_THAT(error, HasSubstr("--colour"));
  EXPECT_FALSE(ParseOptions({"-x"}, &options, &error));
  EXPECT_FALSE(ParseOptions({"--query-gpu=name"}, &options, &error));
  EXPECT_FALSE(ParseOptions({"-i"}, &options, &error));
}

TEST(SmiOptionsTest, RefusesALoopIntervalOfMoreThanADay) {
  SmiOptions options;
  std::string error;
  EXPECT_TRUE(ParseOptions({"-l", "86400"}, &options, &error));
  EXPECT_EQ(options.loop_ms, 86'400'000u);
  EXPECT_TRUE(ParseOptions({"-lms", "86400000"}, &options, &error));
  EXPECT_EQ(options.loop_ms, 86'400'000u);
  // In milliseconds, 4294968 seconds do not fit in 32 bits.
  for (const char* seconds : {"86401", "4294968"}) {
    EXPECT_FALSE(ParseOptions({"-l", seconds}, &options, &error)) << seconds;
    EXPECT_EQ(error, fmt::format("Invalid loop interval \"{}\".\n", seconds));
  }
  EXPECT_FALSE(ParseOptions({"-lms", "86400001"}, &options, &error));
}

TEST(SmiLogTest, ALogEntryWithoutALabelIsOnlyInTheXml) {
  LogNode node = {"", "retired", "", true, {}};
  node.Add("", "count", "3");
  std::string text;
  AppendText(node, 1, &text);
  EXPECT_EQ(text, "");
  AppendXml(node, 0, &text);
  EXPECT_EQ(text, "<retired>\n\t<count>3</count>\n</retired>\n");
}

TEST(SmiLogTest, TextIsAlignedAndXmlIsEscaped) {
  std::string text;
  AppendText({"Name", "name", "a<b"}, 1, &text);
  EXPECT_EQ(text, "    Name                                  : a<b\n");
  std::string xml;
  AppendXml({"Name", "name", "a<b"}, 1, &xml);
  EXPECT_EQ(xml, "\t<name>a&lt;b</name>\n");
}

TEST_F(SmiTest, MigInstancesAreCreatedListedAndDestroyed) {
  EXPECT_THAT(RunSmi("mig -lgip").text, HasSubstr("No MIG-enabled devices found."));
  EXPECT_EQ(RunSmi("-i 1 -mig 1").code, 0);
  const Output profiles = RunSmi("mig -lgip");
  EXPECT_THAT(profiles.text,
              HasSubstr("|   1  MIG 1g.10gb+me    20     1/1        9.50       No     "
                        "14     1     0   |\n"));
  EXPECT_THAT(RunSmi("mig -lgipp").text, HasSubstr("GPU  1 Profile ID  9 Placements: {0,4}:4\n"));
  const Output created = RunSmi("mig -cgi 19,3g.40gb:0 -C");
  EXPECT_EQ(created.code, 0);
  EXPECT_THAT(created.text, HasSubstr("Successfully created GPU instance ID 13 on GPU  1 using "
                                      "profile MIG 1g.10gb (ID 19)\n"));
  EXPECT_THAT(RunSmi("-L").text, HasSubstr("\n  MIG 3g.40gb     Device  0: (UUID: MIG-"));
  EXPECT_THAT(RunSmi("mig -lgi").text,
              HasSubstr("|   1  MIG 3g.40gb          9        1          0:4     |\n"));
  EXPECT_THAT(
      RunSmi("mig -lci").text,
      HasSubstr("|   1     13       MIG 1g.10gb          0         0          0:1     |\n"));
  const Output full = RunSmi("mig -cgi 7g.80gb");
  EXPECT_EQ(full.code, 255);
  EXPECT_THAT(full.text, HasSubstr("Failed to create GPU instances: Insufficient Resources\n"));
  EXPECT_THAT(RunSmi("mig -dgi -gi 13").text, HasSubstr("In use by another client"));
  EXPECT_EQ(RunSmi("mig -dci").code, 0);
  EXPECT_EQ(RunSmi("mig -cci 1c.3g.40gb,0 -gi 1").code, 0);
  EXPECT_THAT(RunSmi("-L").text, HasSubstr("\n  MIG 1c.3g.40gb  Device  1: (UUID: MIG-"));
  EXPECT_EQ(RunSmi("mig -dci -gi 1").code, 0);
  EXPECT_EQ(RunSmi("mig -dgi").code, 0);
  EXPECT_EQ(RunSmi("-i 1 -mig 0").code, 0);
  EXPECT_EQ(RunSmi("mig -lgi").code, 6);
}

}  // namespace
}  // namespace tessera::smi
