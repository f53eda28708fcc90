// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node: records by UUID, with the driver's index of each GPU. The table keeps the
// record of a GPU that can no longer be identified, and merges the links that all GPUs report. It
// calls neither NVML nor a clock. Included only in src/gpu.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/device/gpu.h"
#include "src/gpu/health_tracker.h"
#include "src/gpu/probe.h"
#include "src/gpu/unrepaired_xids.h"

namespace tessera::gpu {

class GpuTable {
 public:
  struct GpuRecord {
    explicit GpuRecord(HealthRules rules) : health(rules) {}

    device::Gpu gpu;  // without its health
    NvmlDevice handle = nullptr;
    bool supports_memory_info = true;   // the GPU supports Nvml::TotalMemory
    bool supports_fabric_info = false;  // the GPU supports Nvml::Fabric
    bool present = false;               // the driver reports it at gpu.index
    HealthTracker health;
    std::optional<LinkReport> links;
  };

  // `remembered`: XIDs that needed a repair when the previous run of the agent ended.
  explicit GpuTable(HealthRules rules, UnrepairedXids remembered = {})
      : rules_(rules), remembered_xids_(std::move(remembered)) {}

  // The driver reports `count` GPUs; `proc_gpus` are the GPUs that the kernel module lists.
  void Resize(int count, std::vector<oci::ProcGpu> proc_gpus);
  int size() const { return static_cast<int>(uuids_.size()); }

  // Records the answer of the GPU at `index`. If the GPU does not report its UUID, takes the UUID
  // that was last known at this index, or the UUID that the kernel module lists at the GPU's
  // address or position. Null if the GPU remains unknown.
  GpuRecord* OnIdentifyAnswer(int index, const IdentityReport& report, MonotonicTime now);
  // The GPU at `index` hangs in `call`. Null if its identity is unknown.
  GpuRecord* OnHang(int index, NvmlCall call);

  // Null if the GPU at `index` has no record.
  GpuRecord* At(int index);
  GpuRecord* FindByHandle(NvmlDevice handle);
  std::map<std::string, GpuRecord>& records() { return records_; }

  // Drops GPUs that the driver does not report; call after a reloaded driver has reported all GPUs.
  void ForgetAbsent();
  bool all_identified() const;

  UnrepairedXids unrepaired() const;

  // Sets `gpus`, `links`, `unidentified` and `notes` of the inventory.
  void FillInventory(device::NodeInventory* inventory) const;

 private:
  std::string GuessUuid(int index, const std::string& pci_bus_id) const;
  bool IsPresent(const std::string& uuid) const;
  const oci::ProcGpu* FindProcGpu(const std::string& uuid) const;
  GpuRecord& AssignIndex(int index, const std::string& uuid);

  const HealthRules rules_;
  const UnrepairedXids remembered_xids_;
  std::vector<std::string> uuids_;     // by index; empty if unknown
  std::vector<std::string> failures_;  // by index: why the GPU is unknown
  std::vector<oci::ProcGpu> proc_gpus_;
  std::map<std::string, GpuRecord> records_;
};

struct LinkedGpu {
  const device::Gpu* gpu;
  const LinkReport* report;  // null until the GPU has answered
};

// nvlinks(a, b) = min(count that a reports, count that b reports): direct links, or links into
// NVSwitch if there are no direct links; 0 while one of the GPUs has not answered. The PCIe level
// is the worse of the levels that the two GPUs report, or the known level if one is unknown. Adds a
// line to `notes` for each pair that reports different counts of direct links, and for each GPU
// with links that could not be read.
device::LinkMatrix MergeLinks(const std::vector<LinkedGpu>& gpus, std::vector<std::string>* notes);

}  // namespace tessera::gpu
