// SPDX-License-Identifier: Apache-2.0
#include "src/device/node_annotation.h"

#include <gtest/gtest.h>

#include <random>

namespace tessera::device {
namespace {

NodeInventory Node(size_t count) {
  NodeInventory node;
  node.driver_version = "550.163.01";
  node.cuda_version = 12040;
  node.links = LinkMatrix(count);
  for (size_t i = 0; i < count; ++i) {
    Gpu gpu{.uuid = fmt::format("GPU-12345678-1234-1234-1234-{:012}", i),
            .index = static_cast<int>(i),
            .minor = static_cast<int>(i),
            .model = "NVIDIA A100-SXM4-80GB",
            .memory = GiB(80),
            .pci_bus_id = fmt::format("0000:{:02x}:00.0", i + 1)};
    gpu.numa_node = static_cast<int>(i) % 2;
    gpu.compute_capability = ComputeCapability{8, 0};
    node.gpus.push_back(std::move(gpu));
    for (size_t j = 0; j < i; ++j) {
      node.links.Set(i, j, {.pcie = PcieLevel::kSystem, .nvlinks = 12, .via_nvswitch = true});
    }
  }
  return node;
}

void ExpectRoundTrip(const NodeInventory& node) {
  const Result<std::string> text = EncodeNodeInventory(node);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_LE(text->size(), kMaxNodeAnnotationBytes);
  const Result<NodeInventory> decoded = DecodeNodeInventory(*text);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString() << "\n" << *text;
  EXPECT_TRUE(*decoded == node) << *text;
}

TEST(NodeAnnotationTest, RoundTripsNodesOfEverySize) {
  for (const size_t count : {0, 1, 2, 8, 16, 64}) ExpectRoundTrip(Node(count));
}

TEST(NodeAnnotationTest, RoundTripsUnknownLinksAndProblems) {
  NodeInventory node = Node(3);
  node.gpus[0] = {.uuid = "GPU-x", .index = 0, .health = Health::Unhealthy("no minor number")};
  node.gpus[1].health = Health::Unhealthy("");
  node.links.Set(0, 2, {});
  node.unidentified = 2;
  node.problem = "a problem with \"quotes\"";
  node.notes = {"one", "two"};
  ExpectRoundTrip(node);
}

void AddMigSlices(Gpu* gpu, int count) {
  gpu->mig.emplace();
  for (int i = 0; i < count; ++i) {
    gpu->mig->push_back({.uuid = fmt::format("MIG-{}-{}", gpu->uuid.substr(4, 31), i),
                         .profile = "1g.10gb",
                         .gpu_instance = 7 + i,
                         .memory = MiB(9728)});
  }
}

TEST(NodeAnnotationTest, RoundTripsMigSlices) {
  NodeInventory node = Node(3);
  node.gpus[0].mig.emplace();  // MIG is on, without slices
  AddMigSlices(&node.gpus[1], 7);
  node.gpus[1].mig->at(2).health = Health::Unhealthy("XID 94");
  node.gpus[1].mig->at(3).profile = "1g.10gb.me";
  ExpectRoundTrip(node);
}

TEST(NodeAnnotationTest, RoundTripsAsManySlicesAndBytesAsTheLimitsAllow) {
  NodeInventory node = Node(64);
  AddMigSlices(&node.gpus[0], kMaxMigSlices);
  ExpectRoundTrip(node);
  const size_t free_bytes = kMaxNodeAnnotationBytes - EncodeNodeInventory(node)->size();
  node.gpus[0].uuid += std::string(free_bytes, 'x');
  ExpectRoundTrip(node);
  node.gpus[0].uuid += 'x';
  EXPECT_EQ(EncodeNodeInventory(node).status().code(), Code::kResourceExhausted);
}

TEST(NodeAnnotationTest, ATextOfInvalidUtf8IsTruncatedToNothing) {
  NodeInventory node = Node(1);
  node.problem = std::string(300, '\x80');
  EXPECT_EQ(EncodeNodeInventory(node)->find('\x80'), std::string::npos);
}

TEST(NodeAnnotationTest, TheComputeCapabilityIsTwoNumbersWithAPoint) {
  const auto read = [](std::string_view capability) {
    return DecodeNodeInventory(fmt::format(
        R"({{"version":1,"gpus":[{{"uuid":"G","index":0,"bytes":1,"cc":"{}"}}]}})", capability));
  };
  for (const char* text : {"0.0", "0.10", "9.9", "12.0", "8.10"}) {
    const Result<NodeInventory> node = read(text);
    ASSERT_TRUE(node.ok()) << node.status().ToString();
    const ComputeCapability read_back = *node->gpus[0].compute_capability;
    EXPECT_EQ(fmt::format("{}.{}", read_back.major, read_back.minor), text);
  }
  for (const char* text : {"8", ".", "8.", ".0", "8x0", "8-0", "x.0", "8.x", "8.0x", "-8.0", "8.-1",
                           "12x0", "12.", "12.0x"}) {
    EXPECT_EQ(read(text).status().message(),
              fmt::format("gpus[0].cc: \"{}\" is not a compute capability such as 8.0", text));
  }
}

TEST(NodeAnnotationTest, RoundTripsHealthAndRuntimeProblems) {
  using State = Health::State;
  NodeInventory node = Node(5);
  int at = 0;
  for (const State state : {State::kHealthy, State::kSuspect, State::kUnhealthy, State::kRecovering,
                            State::kWithheld}) {
    node.gpus[at++].health = {state, state == State::kHealthy ? "" : "why"};
  }
  node.runtime_problem = "config.toml was changed";
  ExpectRoundTrip(node);
  // An older reader only sees whether the GPU is offered.
  const auto text = EncodeNodeInventory(node);
  ASSERT_TRUE(text.ok());
  size_t unhealthy = 0;
  for (size_t i = text->find("\"unhealthy\""); i != std::string::npos;
       i = text->find("\"unhealthy\"", i + 1)) {
    ++unhealthy;
  }
  EXPECT_EQ(unhealthy, 3u);
}

TEST(NodeAnnotationTest, HoldsSixtyFourGpusOfSevenSlicesEach) {
  NodeInventory node = Node(64);
  for (size_t i = 0; i < node.gpus.size(); ++i) {
    node.gpus[i].uuid = fmt::format("GPU-{:08}-1234-1234-1234-123456789012", i);
    AddMigSlices(&node.gpus[i], 7);
  }
  ExpectRoundTrip(node);
  AddMigSlices(&node.gpus[5], 17);
  EXPECT_EQ(EncodeNodeInventory(node).status().code(), Code::kResourceExhausted);
}

TEST(NodeAnnotationTest, NamesTheFieldOfASlice) {
  const struct {
    const char* mig;
    const char* message;
  } kCases[] = {
      {R"({})", "gpus[0].mig: must be an array, not an object"},
      {R"([7])", "gpus[0].mig[0]: must be an object"},
      {R"([{}])", "gpus[0].mig[0].uuid: is missing"},
      {R"([{"uuid":"m"}])", "gpus[0].mig[0].profile: \"\" is not a MIG profile such as 1g.10gb"},
      {R"([{"uuid":"m","profile":"1g.5gb"}])", "gpus[0].mig[0].gi: is missing"},
      {R"([{"uuid":"m","profile":"1g.5gb","gi":-1}])",
       "gpus[0].mig[0].gi: -1 is not between 0 and 1048576"},
      {R"([{"uuid":"m","profile":"1g.5gb","gi":1}])", "gpus[0].mig[0].bytes: is missing"},
      {R"([{"uuid":"m","profile":"1g.5gb","gi":1,"bytes":1125899906842625}])",
       "gpus[0].mig[0].bytes: 1125899906842625 is not between 0 and 1125899906842624"},
      {R"([{"uuid":"a","profile":"1g.5gb","gi":1,"bytes":1}])",
       "gpus[0].mig[0].uuid: a occurs twice"},
  };
  for (const auto& test : kCases) {
    const Result<NodeInventory> node = DecodeNodeInventory(fmt::format(
        R"({{"version":1,"gpus":[{{"uuid":"a","index":0,"bytes":1,"mig":{}}}]}})", test.mig));
    EXPECT_EQ(node.status().message(), test.message);
  }
}

TEST(NodeAnnotationTest, StaysBelowItsLimitsWithReasonsForAllSixtyFourGpus) {
  NodeInventory node = Node(64);
  for (Gpu& gpu : node.gpus) gpu.health = Health::Unhealthy(std::string(5000, 'x'));
  node.notes.assign(100, std::string(5000, 'n'));
  const Result<std::string> text = EncodeNodeInventory(node);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const Result<NodeInventory> decoded = DecodeNodeInventory(*text);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->gpus[63].health.reason, std::string(200, 'x'));
  EXPECT_EQ(decoded->notes.size(), 8u);
}

TEST(NodeAnnotationTest, TruncatesTextsBetweenCharacters) {
  NodeInventory node = Node(1);
  std::string reason = "a";
  for (int i = 0; i < 150; ++i) reason += "é";
  node.gpus[0].health = Health::Unhealthy(reason);
  const Result<NodeInventory> decoded = DecodeNodeInventory(*EncodeNodeInventory(node));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->gpus[0].health.reason.size(), 199u);
}

TEST(NodeAnnotationTest, RejectsMoreGpusThanTheLimit) {
  EXPECT_EQ(EncodeNodeInventory(Node(65)).status().code(), Code::kResourceExhausted);
}

TEST(NodeAnnotationTest, NamesTheFieldAndTheReason) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {R"([])", "must be a JSON object"},
      {R"({"gpus":[]})", "version: is missing"},
      {R"({"version":2,"gpus":[]})", "version: 2 is not supported, only 1"},
      {R"({"version":"1","gpus":[]})", "version: must be a whole number"},
      {R"({"version":1})", "gpus: is missing"},
      {R"({"version":1,"gpus":{}})", "gpus: must be an array, not an object"},
      {R"({"version":1,"gpus":[7]})", "gpus[0]: must be an object"},
      {R"({"version":1,"gpus":[{"index":0,"bytes":1}]})", "gpus[0].uuid: is missing"},
      {R"({"version":1,"gpus":[{"uuid":"a","bytes":1}]})", "gpus[0].index: is missing"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0}]})", "gpus[0].bytes: is missing"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":-1,"bytes":1}]})",
       "gpus[0].index: -1 is not between 0 and 1048576"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":1.5}]})",
       "gpus[0].bytes: must be a whole number"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":1125899906842625}]})",
       "gpus[0].bytes: 1125899906842625 is not between 0 and 1125899906842624"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":1,"cc":"8"}]})",
       "gpus[0].cc: \"8\" is not a compute capability such as 8.0"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":1},)"
       R"({"uuid":"a","index":1,"bytes":1}]})",
       "gpus[1].uuid: a occurs twice"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":1}],"links":[]})",
       "links: 0 rows for 1 GPUs"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":1}],"links":[["SYS"]]})",
       "links[0]: must be an array of 0 links"},
      {R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":1},{"uuid":"b","index":1,"bytes":1}],)"
       R"("links":[[],["NV99"]]})",
       "links[1][0]: \"NV99\" is not a link"},
      {R"({"version":1,"gpus":[],"notes":[1]})", "notes[0]: must be a string"},
  };
  for (const auto& test : kCases) {
    const Result<NodeInventory> node = DecodeNodeInventory(test.text);
    ASSERT_FALSE(node.ok()) << test.text;
    EXPECT_EQ(node.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(node.status().message(), test.message);
  }
}

TEST(NodeAnnotationTest, IgnoresMembersOfLaterVersions) {
  const Result<NodeInventory> node = DecodeNodeInventory(
      R"({"version":1,"gpus":[{"uuid":"a","index":0,"bytes":5,"colour":[]}],"new":{}})");
  ASSERT_TRUE(node.ok()) << node.status().ToString();
  EXPECT_EQ(node->gpus[0].memory, Bytes(5));
}

TEST(NodeAnnotationTest, SurvivesEveryTruncationAndRandomDamage) {
  const std::string text = *EncodeNodeInventory(Node(4));
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(DecodeNodeInventory(text.substr(0, length)).ok());
  }
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = text;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    const Result<NodeInventory> node = DecodeNodeInventory(damaged);
    if (!node.ok()) continue;
    EXPECT_TRUE(EncodeNodeInventory(*node).ok());
  }
}

}  // namespace
}  // namespace tessera::device
