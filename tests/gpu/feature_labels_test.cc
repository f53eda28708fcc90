// SPDX-License-Identifier: Apache-2.0
// Compares the node labels with the labels that NVIDIA's unmodified gpu-feature-discovery v0.20.0
// wrote for the same nodes. The GPUs are simulated, and their folder /sys lists the PCI devices.
#include "src/agent/node/feature_labels.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/gpu/inventory.h"
#include "src/gpu/nvml_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::agent {
namespace {

using LabelMap = std::map<std::string, std::string>;

std::filesystem::path OracleDir() {
  const char* given = std::getenv("TESSERA_ORACLES");
  return std::filesystem::path(given != nullptr ? given : TESSERA_ORACLES_BESIDE_SOURCE) / "gfd";
}

// Returns the first snapshot in which all GPUs are healthy, or null after 30 s.
gpu::InventorySnapshot ReadInventory(const std::string& driver_root, size_t gpus) {
  EpollTaskRunner runner;
  gpu::ThreadCaller caller(&runner);
  gpu::InventorySnapshot complete;
  gpu::Inventory inventory(&runner, std::make_shared<gpu::NvmlLibraryLoader>(driver_root), &caller,
                           {.find_driver_root = [&] { return driver_root; }},
                           [&](gpu::InventorySnapshot snapshot) {
                             if (snapshot->healthy_count() != gpus) return;
                             complete = std::move(snapshot);
                             runner.Quit();
                           });
  runner.Post([&] { inventory.Start(); });
  runner.PostDelayed(std::chrono::seconds(30), [&] { runner.Quit(); });
  runner.Run();
  return complete;
}

LabelMap LabelsOf(const std::string& profile, size_t gpus) {
  sim::testing::SimNode node({.profile = profile});
  const gpu::InventorySnapshot inventory = ReadInventory(node.driver_root(), gpus);
  if (inventory == nullptr) return {};
  const std::string machine = JoinPath(node.driver_root(), "machine-type");
  EXPECT_TRUE(WriteFileAtomically(machine, "DGX Test-Machine 1\n", 0644).ok());
  LabelMap labels;
  for (const auto& [name, value] :
       FeatureLabels(*inventory, ReadNodeHardware(JoinPath(node.driver_root(), "sys"), machine))) {
    if (value && name != "nvidia.com/gpu.present") labels[name] = *value;
  }
  return labels;
}

void CompareWith(const std::string& file, const std::string& profile, size_t gpus) {
  const std::filesystem::path path = OracleDir() / file;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there: set TESSERA_ORACLES to the folder of golden answers";
  }
  LabelMap recorded;
  const std::string text = *ReadFile(path.string());
  for (const std::string_view line : SplitList(text, '\n')) {
    const size_t equals = line.find('=');
    recorded[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  EXPECT_EQ(LabelsOf(profile, gpus), recorded);
}

TEST(FeatureLabelsTest, EqualNvidiasOnEightA100) {
  CompareWith("a100-none-mig_none.labels", "a100-sxm4-40gb", 8);
}

TEST(FeatureLabelsTest, EqualNvidiasOnFourT4) {
  CompareWith("t4-none-mig_none.labels",
              "base: t4\nname: recorded\ngpu:\n  name: NVIDIA T4\n  memory_mib: 16384\n", 4);
}

}  // namespace
}  // namespace tessera::agent
