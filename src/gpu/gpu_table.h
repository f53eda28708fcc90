// SPDX-License-Identifier: Apache-2.0
// Which GPUs this node has: accounts by UUID, and the driver's index at which each was last seen.
// Remembers a GPU that stops telling who it is. Pure. Private to this room.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/device/gpu.h"
#include "src/gpu/health_tracker.h"
#include "src/gpu/probe.h"
#include "src/gpu/xid_memory.h"

namespace tessera::gpu {

class GpuTable {
 public:
  struct Record {
    explicit Record(HealthRules rules) : health(rules) {}

    device::Gpu gpu;  // but for its health
    NvmlDevice handle = nullptr;
    bool polls_memory = true;
    bool present = false;  // at gpu.index
    HealthTracker health;
    std::optional<LinkReport> links;
  };

  // `remembered`: XIDs that waited for their repair when the agent last ran.
  explicit GpuTable(HealthRules rules, UnrepairedXids remembered = {})
      : rules_(rules), remembered_(std::move(remembered)) {}

  // The driver counts `count` GPUs; `proc_gpus` is what the kernel module knows.
  void Resize(int count, std::vector<oci::ProcGpu> proc_gpus);
  int size() const { return static_cast<int>(uuids_.size()); }

  // The answer to who is at `index`. A GPU that does not say is taken for the one that was there
  // before, or that the kernel module knows at its address or place. Null if nobody knows.
  Record* OnIdentified(int index, const GpuReport& report, MonotonicTime now);
  // The GPU at `index` hangs in `call`; null if nobody knows which it is.
  Record* OnHang(int index, NvmlCall call);

  // Null where there is none.
  Record* At(int index);
  Record* FindHandle(NvmlDevice handle);
  std::map<std::string, Record>& records() { return records_; }

  // Drops GPUs that the driver does not report: it was loaded anew and has spoken for all.
  void ForgetAbsent();
  bool everyone_known() const;

  UnrepairedXids unrepaired() const;

  // gpus, links, unidentified and notes.
  void Fill(device::NodeInventory* inventory) const;

 private:
  std::string GuessUuid(int index, const std::string& pci_bus_id) const;
  bool IsPresent(const std::string& uuid) const;
  const oci::ProcGpu* FindProc(const std::string& uuid) const;
  Record& Bind(int index, const std::string& uuid);

  const HealthRules rules_;
  const UnrepairedXids remembered_;
  std::vector<std::string> uuids_;     // by index; empty where nobody knows
  std::vector<std::string> failures_;  // by index: why not
  std::vector<oci::ProcGpu> proc_gpus_;
  std::map<std::string, Record> records_;
};

}  // namespace tessera::gpu
