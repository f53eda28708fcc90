// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string CountersError(std::string_view text) {
  const auto parsed = ParseCounters(text, "/etc/c.csv");
  return parsed.ok() ? "" : parsed.status().ToString();
}

TEST(FieldsTest, NamesAreUniqueAndTypesAreKnown) {
  std::set<std::string_view> names;
  for (const Field& field : AllFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(field.newer_name.empty() || names.insert(field.newer_name).second);
    EXPECT_TRUE(field.type == "gauge" || field.type == "counter" || field.type == "label");
    EXPECT_FALSE(field.help.empty());
    EXPECT_EQ(FindField(field.name), &field);
  }
  EXPECT_EQ(FindField("DCGM_FI_DEV_GPU_UTIL_RATIO"), FindField("DCGM_FI_DEV_GPU_UTIL"));
  EXPECT_EQ(FindField(""), nullptr);
  EXPECT_EQ(FindField("DCGM_FI_DEV_GPU_TMP"), nullptr);
  for (const char* without : {"DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_NVLINK_THROUGHPUT_L11",
                              "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L3"}) {
    ASSERT_NE(FindField(without), nullptr) << without;
    EXPECT_EQ(FindField(without)->source, FieldSource::kNone);
  }
  EXPECT_EQ(FindField("DCGM_FI_DEV_PCIE_LINK"), nullptr) << "not a part of a name";
}

TEST(CountersTest, WithoutAFileDcgmExportersDefaultCountersAreServedInOrder) {
  const auto counters = LoadCounters("");
  ASSERT_TRUE(counters.ok());
  std::vector<std::string> names;
  for (const CounterSpec& counter : *counters) names.push_back(counter.name.substr(8));
  EXPECT_THAT(names, ::testing::ElementsAre(
                         "DEV_SM_CLOCK", "DEV_MEM_CLOCK", "DEV_MEMORY_TEMP", "DEV_GPU_TEMP",
                         "DEV_POWER_USAGE", "DEV_TOTAL_ENERGY_CONSUMPTION",
                         "DEV_PCIE_REPLAY_COUNTER", "DEV_GPU_UTIL", "DEV_MEM_COPY_UTIL",
                         "DEV_ENC_UTIL", "DEV_DEC_UTIL", "DEV_XID_ERRORS", "DEV_FB_FREE",
                         "DEV_FB_USED", "DEV_FB_RESERVED", "DEV_NVLINK_BANDWIDTH_TOTAL",
                         "DEV_VGPU_LICENSE_STATUS", "DEV_UNCORRECTABLE_REMAPPED_ROWS",
                         "DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_FAILURE", "DRIVER_VERSION",
                         "PROF_GR_ENGINE_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE",
                         "PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"));
}

TEST(CountersTest, ReadsLinesAsDcgmExporterDoes) {
  const auto counters = ParseCounters(
      "# a comment\n"
      "\n"
      "DCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder utilization (in %).\r\n"
      "  # another\n"
      "DCGM_FI_DEV_BOARD_POWER_WATTS, counter, \"watts, \"\"drawn\"\"\"\n"
      "DCGM_FI_DEV_SERIAL,label,serial",
      "file");
  ASSERT_TRUE(counters.ok()) << counters.status().ToString();
  ASSERT_EQ(counters->size(), 3u);
  EXPECT_EQ((*counters)[0].name, "DCGM_FI_DEV_DEC_UTIL");
  EXPECT_EQ((*counters)[0].help, "Decoder utilization (in %).");
  EXPECT_EQ((*counters)[1].name, "DCGM_FI_DEV_BOARD_POWER_WATTS") << "as the file spells it";
  EXPECT_EQ((*counters)[1].field->source, FieldSource::kPower);
  EXPECT_EQ((*counters)[1].type, "counter");
  EXPECT_EQ((*counters)[1].help, "watts, \"drawn\"");
  EXPECT_TRUE((*counters)[2].is_label());
}

TEST(CountersTest, AnErrorNamesFileLineAndRemedy) {
  EXPECT_THAT(CountersError("DCGM_FI_DEV_GPU_TEMP, gauge, C\nDCGM_FI_DEV_GPU_TMP, gauge, C\n"),
              AllOf(HasSubstr("INVALID_ARGUMENT: /etc/c.csv, line 2: "),
                    HasSubstr("DCGM_FI_DEV_GPU_TMP"), HasSubstr("default-counters.csv")));
  EXPECT_THAT(CountersError("\nDCGM_FI_DEV_GPU_TEMP, gauge\n"),
              AllOf(HasSubstr("line 2: 2 columns"), HasSubstr("\"FIELD, type, help\"")));
  EXPECT_THAT(CountersError("DCGM_FI_DEV_GPU_TEMP, gauge, a, b\n"),
              AllOf(HasSubstr("line 1: 4 columns"), HasSubstr("double quotes")));
  EXPECT_THAT(CountersError("DCGM_FI_DEV_GPU_TEMP, guage, C\n"),
              AllOf(HasSubstr("\"guage\""), HasSubstr("write gauge, counter")));
  EXPECT_THAT(CountersError("DCGM_FI_DEV_GPU_TEMP, gauge, \"C\n"), HasSubstr("not closed"));
  EXPECT_THAT(CountersError("DCGM_FI_DEV_GPU_TEMP, gauge, \"C\"x\n"), HasSubstr("text follows"));
  EXPECT_THAT(CountersError("DCGM_FI_DEV_GPU_TEMP,gauge,C\n#\nDCGM_FI_DEV_GPU_TEMP,gauge,C\n"),
              AllOf(HasSubstr("line 3"), HasSubstr("is in line 1, too")));
}

TEST(CountersTest, NamesTheFlagOfAMissingFile) {
  const auto counters = LoadCounters("/no/such.csv");
  EXPECT_EQ(counters.status().code(), Code::kNotFound);
  EXPECT_THAT(counters.status().message(), AllOf(HasSubstr("--collectors"), HasSubstr("/no/such")));
}

TEST(CountersTest, AFileReplacesTheBuiltInSet) {
  TempDir dir;
  const std::string path = dir.path() + "/counters.csv";
  ASSERT_TRUE(WriteFileAtomically(path, "DCGM_FI_DEV_GPU_TEMP, gauge, C\n", 0644).ok());
  EXPECT_EQ(LoadCounters(path)->size(), 1u);
}

}  // namespace
}  // namespace tessera::agent
