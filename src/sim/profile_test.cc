// SPDX-License-Identifier: Apache-2.0
#include "src/sim/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "src/base/file.h"
#include "src/formats/json.h"

namespace tessera::sim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// The node of the recorded answers: 8 x A100-SXM4-40GB with fixed UUIDs.
std::string OracleNode(const std::string& nvlink) {
  std::string text =
      "base: a100-sxm4-40gb\nname: oracle\nnode:\n  gpus: 8\n  numa_nodes: 2\n"
      "  pci_buses: [07, 0f, 47, 4e, 87, 90, b7, bd]\n"
      "  pcie: {pair: single, half: host-bridge, across: system}\n"
      "  nvlink: " +
      nvlink + "\n  uuids:\n";
  for (int i = 0; i < 8; ++i)
    text += fmt::format("    - GPU-12345678-1234-1234-1234-12345678000{}\n", i);
  return text;
}

int LinksBetween(const StateFile& state, int a, int b) {
  int links = 0;
  for (const NvLink& link : state.facts[a].links) {
    if (link.active == 0 || link.remote_gpu != b) continue;
    ++links;
    const NvLink& back = state.facts[b].links[link.remote_link];
    EXPECT_EQ(back.remote_gpu, a);
    EXPECT_EQ(std::memcmp(&link.remote, &state.facts[b].pci, sizeof(PciAddress)), 0);
  }
  return links;
}

std::string ErrorOf(const std::string& text) {
  auto profile = ParseProfile(text, "my.yaml");
  return profile.ok() ? "" : profile.status().message();
}

TEST(ProfileTest, AllBuiltInProfilesHaveOneToSixteenGpus) {
  EXPECT_THAT(ProfileNames(), Contains("h200-sxm5-141gb"));
  for (const std::string& name : ProfileNames()) {
    auto profile = LoadProfile(name);
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    EXPECT_EQ(profile->name, name);
    for (uint32_t gpus = 1; gpus <= kMaxGpus; ++gpus) {
      profile->gpus = gpus;
      auto state = MakeState(*profile, "node");
      ASSERT_TRUE(state.ok()) << name << ": " << state.status().ToString();
      std::set<std::string> uuids;
      uint32_t last_bus = 0;
      for (uint32_t i = 0; i < gpus; ++i) {
        uuids.insert((*state)->facts[i].uuid);
        EXPECT_GT((*state)->facts[i].pci.bus, last_bus) << "NVML orders GPUs by bus";
        last_bus = (*state)->facts[i].pci.bus;
      }
      EXPECT_EQ(uuids.size(), gpus);
    }
  }
}

TEST(ProfileTest, TheCudaVersionFollowsFromTheDriverVersion) {
  const auto cuda = [](const std::string& driver) {
    return ParseProfile("base: t4\ndriver: " + driver + "\n", "my.yaml")->cuda_version;
  };
  EXPECT_EQ(cuda("{version: 470.256.02}"), 11040u);
  EXPECT_EQ(cuda("{version: 535.309.01}"), 12020u);
  EXPECT_EQ(cuda("{version: 550.163.01}"), 12040u);
  EXPECT_EQ(cuda("{version: 570.211.01}"), 12080u);
  EXPECT_EQ(cuda("{version: 580.95.05}"), 13000u);
  EXPECT_EQ(cuda("{cuda: 12.6, version: 535.309.01}"), 12060u) << "a profile may set it";
  EXPECT_EQ(cuda("{cuda: 12.6}"), 12060u);
  EXPECT_THAT(ErrorOf("base: t4\ndriver: {version: 700.10}\n"),
              HasSubstr("my.yaml:2: driver.version: the CUDA version of driver 700 is unknown: "
                        "set driver.cuda"));
}

TEST(ProfileTest, UuidsFollowFromNodeAndIndex) {
  const Profile profile = *LoadProfile("t4");
  const auto a = *MakeState(profile, "a");
  const auto again = *MakeState(profile, "a");
  const auto b = *MakeState(profile, "b");
  EXPECT_STREQ(a->facts[0].uuid, again->facts[0].uuid);
  EXPECT_STRNE(a->facts[0].uuid, b->facts[0].uuid);
  EXPECT_EQ(std::strlen(a->facts[0].uuid), 40u);
}

TEST(ProfileTest, DescribesTheNodesOfTheRecordedAnswers) {
  auto pairs = ParseProfile(OracleNode("[0-1:12, 2-3:12, 4-5:12, 6-7:12]"), "pairs");
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  const auto state = *MakeState(*pairs, "node");
  EXPECT_STREQ(state->facts[7].uuid, "GPU-12345678-1234-1234-1234-123456780007");
  EXPECT_STREQ(state->facts[7].name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(state->facts[5].pci.bus, 0x90u);
  EXPECT_EQ(state->facts[3].numa_node, 0);
  EXPECT_EQ(state->facts[4].numa_node, 1);
  EXPECT_EQ(LinksBetween(*state, 2, 3), 12);
  EXPECT_EQ(LinksBetween(*state, 1, 2), 0);
  EXPECT_EQ(state->facts[0].pcie_level[1], 10u);
  EXPECT_EQ(state->facts[0].pcie_level[3], 30u);
  EXPECT_EQ(state->facts[0].pcie_level[4], 50u);

  auto quads = ParseProfile(OracleNode("{topology: quads, links: 4}"), "quads");
  ASSERT_TRUE(quads.ok()) << quads.status().ToString();
  const auto quad_state = *MakeState(*quads, "node");
  EXPECT_EQ(LinksBetween(*quad_state, 0, 3), 4);
  EXPECT_EQ(LinksBetween(*quad_state, 3, 4), 0);
}

TEST(ProfileTest, InvalidNamesAreRefused) {
  for (const char* name : {"\"a\\nb\"", "a/b", "../x", "\"\"", "a b", "-x"}) {
    EXPECT_THAT(ErrorOf(fmt::format("base: t4\nname: {}\n", name)),
                HasSubstr("my.yaml:2: name: invalid name: want"))
        << name;
  }
  EXPECT_THAT(ErrorOf("base: t4\ngpu:\n  name: \"a\\nb\"\n"),
              HasSubstr("gpu.name: invalid text: want one line"));
  EXPECT_TRUE(ParseProfile("base: t4\nname: My_node-2.0\n", "my.yaml").ok());
}

TEST(ProfileTest, ErrorsNameFileLineAndField) {
  EXPECT_THAT(ErrorOf("base: t4\ngpu:\n  memory_mib: 0\n"),
              HasSubstr("my.yaml:3: gpu.memory_mib: invalid value 0"));
  EXPECT_THAT(ErrorOf("base: t4\ngpu:\n  memory: 5\n"),
              HasSubstr("my.yaml:3: gpu.memory: unknown field"));
  for (const char* version : {"\"-8.0\"", "\" 8.0\"", "\"+8.0\""}) {
    EXPECT_THAT(ErrorOf(fmt::format("base: t4\ngpu:\n  compute_capability: {}\n", version)),
                HasSubstr("my.yaml:3: gpu.compute_capability: invalid compute capability"));
    EXPECT_THAT(ErrorOf(fmt::format("base: t4\ndriver:\n  cuda: {}\n", version)),
                HasSubstr("my.yaml:3: driver.cuda: invalid version"));
  }
  EXPECT_THAT(ErrorOf("base: t5\n"), HasSubstr("my.yaml:1: base: no profile \"t5\": want one of"));
  EXPECT_THAT(ErrorOf("base: t4\nnode:\n  gpus: 17\n"),
              HasSubstr("my.yaml:3: node.gpus: invalid value 17: want 1 to 16"));
  EXPECT_THAT(ErrorOf("base: t4\nnode:\n  pci_buses:\n    - 07\n    - 07\n"),
              HasSubstr("my.yaml:5"));
  EXPECT_THAT(ErrorOf("base: t4\nnode:\n  uuids: [GPU-1]\n"), HasSubstr("GPU-1"));
  EXPECT_THAT(ErrorOf("base: a100-sxm4-40gb\nnode:\n  nvlink: [0-1]\n"), HasSubstr("0-1:12"));
  EXPECT_THAT(ErrorOf("base: a100-sxm4-40gb\nnode:\n  nvlink: [\"0-1:12\", \"0-2:1\"]\n"),
              HasSubstr("too few free links for 1 links between them: a GPU has 12"));
  EXPECT_THAT(ErrorOf("base: t4\ngpu:\n  mig_profiles:\n    - {starts: 3}\n"),
              HasSubstr("my.yaml:4: gpu.mig_profiles.starts: invalid value: want a list"));
  EXPECT_THAT(ErrorOf("base: doc.yaml\n"), HasSubstr("my.yaml:1: base: invalid base \"doc.yaml\""));
  EXPECT_THAT(ErrorOf("name: x\n"), HasSubstr("gpu.name"));
  EXPECT_THAT(ErrorOf("- 1\n"), HasSubstr("my.yaml"));
  EXPECT_THAT(ErrorOf("a: [\n"), HasSubstr("my.yaml"));
  EXPECT_NE(ErrorOf(""), "");
}

}  // namespace
}  // namespace tessera::sim
