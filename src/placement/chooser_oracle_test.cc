// SPDX-License-Identifier: Apache-2.0
// Compares our choices with recorded answers of NVIDIA's device plugin on simulated nodes. Ours
// must never be worse in the links of the chosen set, nor in the links of the best division of all
// available GPUs that remains possible.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "src/base/file.h"
#include "src/formats/json.h"
#include "src/placement/chooser.h"
#include "src/placement/testing/reference_choice.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

std::filesystem::path OracleDir() {
  const char* given = std::getenv("TESSERA_ORACLES");
  return std::filesystem::path(given != nullptr ? given : TESSERA_ORACLES_BESIDE_SOURCE) /
         "deviceplugin";
}

device::PcieLevel LevelOfNvmlNumber(int number) {
  switch (number) {
    case 0:
      return device::PcieLevel::kSameBoard;
    case 10:
      return device::PcieLevel::kSingleSwitch;
    case 20:
      return device::PcieLevel::kMultiSwitch;
    case 30:
      return device::PcieLevel::kHostBridge;
    case 40:
      return device::PcieLevel::kNode;
    default:
      return device::PcieLevel::kSystem;
  }
}

// Parses "0-1:12,2-3:12" and "pair 10, half 30, across 50".
Topology TopologyOf(const std::string& nvlinks, const std::string& levels) {
  int pair = 0, half = 0, across = 0;
  EXPECT_EQ(std::sscanf(levels.c_str(), "pair %d, half %d, across %d", &pair, &half, &across), 3);
  Topology topology = testing::MakeTopology(8, 2, [&](int a, int b) -> device::Link {
    const int level = a / 2 == b / 2 ? pair : a / 4 == b / 4 ? half : across;
    return {.pcie = LevelOfNvmlNumber(level)};
  });
  std::istringstream entries(nvlinks);
  for (std::string entry; std::getline(entries, entry, ',');) {
    int a = 0, b = 0, count = 0;
    EXPECT_EQ(std::sscanf(entry.c_str(), "%d-%d:%d", &a, &b, &count), 3) << entry;
    device::Link link = topology.links.At(a, b);
    link.nvlinks = static_cast<uint8_t>(count);
    topology.links.Set(a, b, link);
  }
  return topology;
}

uint32_t MaskOf(const Json& positions) {
  uint32_t mask = 0;
  for (const Json& position : positions.items()) mask |= 1u << *position.ToInt();
  return mask;
}

std::vector<std::string> IdsOf(const Topology& topology, uint32_t mask) {
  std::vector<std::string> ids;
  for (; mask != 0; mask &= mask - 1) ids.push_back(topology.ids[std::countr_zero(mask)]);
  return ids;
}

void CompareWith(const std::string& name) {
  const std::filesystem::path path = OracleDir() / name;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is missing: set TESSERA_ORACLES to the directory of recorded answers";
  }
  const Result<Json> file = ParseJson(*ReadFile(path.string()));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const Json& setting = *file->Find("case");
  const Topology topology =
      TopologyOf(*setting.StringAt("SIM_NVLINK"), *setting.StringAt("SIM_TOPO"));
  const Chooser chooser(topology);
  testing::ReferenceChoice reference(topology, testing::Search::kPlain);
  int equal = 0;
  for (const Json& question : file->Find("queries")->items()) {
    const uint32_t available = MaskOf(*question.Find("available"));
    const uint32_t theirs = MaskOf(*question.Find("answer"));
    const int size = static_cast<int>(*question.IntAt("size"));
    const auto ids = chooser.ChooseDevices(IdsOf(topology, available),
                                           IdsOf(topology, MaskOf(*question.Find("must"))), size);
    ASSERT_TRUE(ids.ok());
    uint32_t ours = 0;
    for (const std::string& id : *ids) {
      ours |= 1u << (std::ranges::find(topology.ids, id) - topology.ids.begin());
    }
    ASSERT_EQ(std::popcount(ours), std::popcount(theirs)) << question.Serialize();
    equal += ours == theirs;
    if (ours == 0) continue;
    EXPECT_GE(reference.Score(ours), reference.Score(theirs)) << question.Serialize();
    EXPECT_GE(reference.Total(available, ours), reference.Total(available, theirs))
        << question.Serialize();
  }
  std::printf("%s: %d of %zu the same set\n", name.c_str(), equal,
              file->Find("queries")->items().size());
}

TEST(ChooserOracleTest, IsNeverWorseThanNvidiaOnNvLinkPairs) {
  CompareWith("nvlink-pairs-preferred.json");
}

TEST(ChooserOracleTest, IsNeverWorseThanNvidiaOnNvLinkQuads) {
  CompareWith("nvlink-quads-preferred.json");
}

}  // namespace
}  // namespace tessera::placement
