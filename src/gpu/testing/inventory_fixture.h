// SPDX-License-Identifier: Apache-2.0
// An Inventory over FakeNvml in virtual time, for the tests of src/gpu.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "src/base/log.h"
#include "src/gpu/driver_gate.h"
#include "src/gpu/inventory.h"
#include "src/gpu/testing/fake_nvml.h"

namespace tessera::gpu::testing {

class InventoryFixture {
 public:
  explicit InventoryFixture(std::shared_ptr<FakeDriver> driver) : quiet_([](std::string_view) {}) {
    loader->driver = std::move(driver);
    options.sys_root = options.proc_root = "/nonexistent";
  }

  void Start() {
    inventory = std::make_unique<Inventory>(
        &runner, std::make_shared<GatedLoader>(gate, loader), &caller, options,
        [this](InventorySnapshot snapshot) { snapshots.push_back(std::move(snapshot)); });
    inventory->Start();
    runner.RunUntilIdle();
  }
  void Advance(Duration by) { runner.AdvanceTimeAndRun(by); }

  FakeDriver& driver() { return *loader->driver; }
  const device::NodeInventory& node() const { return *snapshots.back(); }
  // "" for a healthy GPU, "absent" for a GPU that is not listed.
  std::string ReasonOf(int index) const {
    const device::Gpu* gpu = node().Find(UuidOf(index));
    return gpu == nullptr ? "absent" : gpu->health.reason;
  }
  static std::string UuidOf(int index) {
    return fmt::format("GPU-{:08x}-0000-0000-0000-{:012x}", index, index);
  }

 private:
  ScopedLogSinkForTest quiet_;

 public:
  FakeTaskRunner runner;
  std::shared_ptr<FakeLoader> loader = std::make_shared<FakeLoader>();
  std::shared_ptr<DriverGate> gate = std::make_shared<DriverGate>("closed for maintenance");
  FakeCaller caller{&runner};
  InventoryOptions options;
  std::vector<InventorySnapshot> snapshots;
  std::unique_ptr<Inventory> inventory;
};

}  // namespace tessera::gpu::testing
