// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_events.h"

#include <gtest/gtest.h>

#include "src/device/node_annotation.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

device::NodeInventory Gpus(const std::vector<std::string>& reasons) {
  device::NodeInventory inventory;
  inventory.driver_version = "550.163.01";
  for (const std::string& reason : reasons) {
    const int i = static_cast<int>(inventory.gpus.size());
    inventory.gpus.push_back({.uuid = "GPU-" + std::to_string(i), .index = i});
    if (!reason.empty()) inventory.gpus.back().health = device::Health::Unhealthy(reason);
  }
  return inventory;
}

device::NodeInventory WithoutDriver(device::NodeInventory inventory) {
  inventory.driver_version.clear();
  inventory.problem = "no driver";
  for (device::Gpu& gpu : inventory.gpus) gpu.health = device::Health::Unhealthy("no driver");
  return inventory;
}

std::string Texts(const std::vector<NodeEvent>& events) {
  std::string text;
  for (const NodeEvent& event : events) {
    text += fmt::format("{}{}: {}\n", event.warning ? "!" : "", event.reason, event.message);
  }
  return text;
}

TEST(NodeEventsTest, NamesEachGpuThatChanges) {
  EXPECT_EQ(Texts(EventsBetween(Gpus({"", "XID 48", "XID 13"}), Gpus({"XID 79", "", "XID 13"}))),
            "!GPUUnhealthy: GPU 0 (GPU-0) is unhealthy: XID 79\n"
            "GPUHealthy: GPU 1 (GPU-1) is healthy again, after: XID 48\n");
  EXPECT_TRUE(EventsBetween(Gpus({"", "x"}), Gpus({"", "y"})).empty());
}

TEST(NodeEventsTest, ALostRuntimeGivesOneEventAndItsReturnAnother) {
  auto changed = Gpus({""});
  changed.runtime_problem = "config.toml was changed";
  EXPECT_EQ(Texts(EventsBetween(Gpus({""}), changed)),
            "!RuntimeNotConfigured: config.toml was changed\n");
  EXPECT_TRUE(EventsBetween(changed, changed).empty());
  EXPECT_EQ(Texts(EventsBetween(changed, Gpus({""}))),
            "RuntimeConfigured: containers start through tessera-runtime again\n");
}

TEST(NodeEventsTest, TheFirstEventsOfANodeReportProblemsOnly) {
  EXPECT_TRUE(EventsBetween(std::nullopt, Gpus({"", ""})).empty());
  EXPECT_EQ(EventsBetween(std::nullopt, Gpus({"XID 79", ""})).size(), 1u);
  EXPECT_EQ(Texts(EventsBetween(std::nullopt, WithoutDriver(Gpus({})))),
            "!DriverNotReady: no driver\n");
}

TEST(NodeEventsTest, ADriverProblemGivesOneEventAndNotOneForEachGpu) {
  const auto healthy = Gpus({"", "", ""});
  EXPECT_EQ(Texts(EventsBetween(healthy, WithoutDriver(healthy))), "!DriverNotReady: no driver\n");
  EXPECT_EQ(Texts(EventsBetween(WithoutDriver(healthy), healthy)),
            "DriverReady: driver 550.163.01 reports 3 GPUs\n");
  EXPECT_TRUE(EventsBetween(WithoutDriver(healthy), WithoutDriver(healthy)).empty());
  EXPECT_EQ(Texts(EventsBetween(WithoutDriver(healthy), Gpus({"", "XID 79", ""}))),
            "DriverReady: driver 550.163.01 reports 3 GPUs\n"
            "!GPUUnhealthy: GPU 1 (GPU-1) is unhealthy: XID 79\n");
}

TEST(NodeEventsTest, ANoteGivesOneEventEvenIfItWasTruncated) {
  auto noted = Gpus({"", ""});
  noted.notes = {"counts GiB", std::string(500, 'x')};
  const auto events = EventsBetween(Gpus({"", ""}), noted);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(Texts({events[0]}), "!GPUNote: counts GiB\n");
  const auto written = device::DecodeNodeInventory(*device::EncodeNodeInventory(noted));
  EXPECT_TRUE(EventsBetween(*written, noted).empty());
  EXPECT_TRUE(EventsBetween(noted, Gpus({"", ""})).empty());
}

TEST(NodeEventsTest, ReadsTheEarlierInventoryFromTheNode) {
  Json node = *ParseJson(R"({"metadata":{"annotations":{}}})");
  EXPECT_FALSE(InventoryOn(node));
  Json& annotations = *node.Find("metadata")->Find("annotations");
  annotations.Set("tessera.dev/devices",
                  Json::String(*device::EncodeNodeInventory(Gpus({"", "XID 79"}))));
  EXPECT_EQ(InventoryOn(node)->healthy_count(), 1u);
  annotations.Set("tessera.dev/devices", Json::String("{"));
  EXPECT_FALSE(InventoryOn(node));
}

TEST(NodeEventsTest, TheEventObjectNamesTheNode) {
  const Json node = *ParseJson(R"({"metadata":{"name":"n1","uid":"1-2"}})");
  const Json event = EventObject(node, {true, "GPUUnhealthy", "why"}, WallTime(1'800'000'000s));
  const Json& about = *event.Find("involvedObject");
  EXPECT_EQ(*about.StringAt("kind") + *about.StringAt("name") + *about.StringAt("uid"),
            "Noden11-2");
  EXPECT_EQ(*event.StringAt("type"), "Warning");
  EXPECT_EQ(*event.StringAt("firstTimestamp"), "2027-01-15T08:00:00Z");
  EXPECT_EQ(*event.Find("metadata")->StringAt("name"), "n1.18fae27693b40000");
  EXPECT_EQ(*event.Find("metadata")->StringAt("namespace"), "default");
}

}  // namespace
}  // namespace tessera::agent
