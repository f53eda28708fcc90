// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/gpu_table.h"

#include <algorithm>
#include <utility>

#include "src/gpu/links.h"

namespace tessera::gpu {
namespace {

// Copies the known fields; fields whose query failed keep their old values.
void Update(const device::Gpu& report, device::Gpu* gpu) {
  gpu->index = report.index;
  if (report.minor) gpu->minor = report.minor;
  if (!report.model.empty()) gpu->model = report.model;
  if (report.memory.count() != 0) gpu->memory = report.memory;
  if (!report.pci_bus_id.empty()) {
    gpu->pci_bus_id = report.pci_bus_id;
    gpu->numa_node = report.numa_node;
  }
  if (report.compute_capability) gpu->compute_capability = report.compute_capability;
}

}  // namespace

void GpuTable::Resize(int count, std::vector<oci::ProcGpu> proc_gpus) {
  for (int index = count; index < size(); ++index) {
    if (Record* record = At(index)) {
      record->present = false;
      record->health.OnMissing();
    }
  }
  uuids_.resize(count);
  failures_.resize(count);
  proc_gpus_ = std::move(proc_gpus);
}

GpuTable::Record* GpuTable::OnIdentified(int index, const GpuReport& report, MonotonicTime now) {
  const std::string uuid =
      report.identified ? report.gpu.uuid : GuessUuid(index, report.gpu.pci_bus_id);
  failures_[index] = report.status.message();
  if (uuid.empty()) return nullptr;
  Record& record = Bind(index, uuid);
  Update(report.gpu, &record.gpu);
  if (report.handle != nullptr) record.handle = report.handle;
  record.polls_memory = report.polls_memory;
  if (report.status.ok()) record.health.OnMigMode(report.mig);
  record.health.OnAnswer(report.status, std::nullopt, now);
  return &record;
}

GpuTable::Record* GpuTable::OnHang(int index, NvmlCall call) {
  failures_[index] = fmt::format("NVML call {} did not return", NvmlCallName(call));
  const std::string uuid = GuessUuid(index, "");
  if (uuid.empty()) return nullptr;
  Record& record = Bind(index, uuid);
  record.health.OnHang(call);
  return &record;
}

GpuTable::Record* GpuTable::At(int index) {
  if (uuids_[index].empty()) return nullptr;
  return &records_.at(uuids_[index]);
}

GpuTable::Record* GpuTable::FindHandle(NvmlDevice handle) {
  for (auto& [uuid, record] : records_) {
    if (record.present && record.handle == handle) return &record;
  }
  return nullptr;
}

void GpuTable::ForgetAbsent() {
  std::erase_if(records_, [](const auto& entry) { return !entry.second.present; });
}

bool GpuTable::everyone_known() const {
  return std::ranges::none_of(uuids_, [](const std::string& uuid) { return uuid.empty(); });
}

UnrepairedXids GpuTable::unrepaired() const {
  // Of GPUs that have not shown up since, nothing has changed.
  UnrepairedXids all = remembered_;
  for (const auto& [uuid, record] : records_) {
    const std::optional<uint64_t> xid = record.health.unrepaired_xid();
    if (xid) {
      all[uuid] = *xid;
    } else {
      all.erase(uuid);
    }
  }
  return all;
}

void GpuTable::Fill(device::NodeInventory* inventory) const {
  std::vector<const Record*> order;
  for (const auto& [uuid, record] : records_) order.push_back(&record);
  std::ranges::stable_sort(order, {}, [](const Record* record) { return record->gpu.index; });
  std::vector<LinkedGpu> linked;
  for (const Record* record : order) {
    inventory->gpus.push_back(record->gpu);
    inventory->gpus.back().health = record->health.health();
    if (record->health.mig()) inventory->gpus.back().mig.emplace();
    linked.push_back({&record->gpu, record->links ? &*record->links : nullptr});
  }
  inventory->links = MergeLinks(linked, &inventory->notes);
  for (int index = 0; index < size(); ++index) {
    if (!uuids_[index].empty()) continue;
    ++inventory->unidentified;
    inventory->notes.push_back(
        fmt::format("GPU {} did not tell who it is: {}", index,
                    failures_[index].empty() ? "no answer yet" : failures_[index]));
  }
}

std::string GpuTable::GuessUuid(int index, const std::string& pci_bus_id) const {
  if (!uuids_[index].empty()) return uuids_[index];
  if (!pci_bus_id.empty()) {
    for (const auto& [uuid, record] : records_) {
      if (!record.present && record.gpu.pci_bus_id == pci_bus_id) return uuid;
    }
    for (const oci::ProcGpu& gpu : proc_gpus_) {
      if (gpu.bus_id == pci_bus_id && !IsPresent(gpu.uuid)) return gpu.uuid;
    }
  }
  // Both lists are in the order of PCI addresses.
  if (proc_gpus_.size() == uuids_.size() && !IsPresent(proc_gpus_[index].uuid)) {
    return proc_gpus_[index].uuid;
  }
  return "";
}

bool GpuTable::IsPresent(const std::string& uuid) const {
  const auto record = records_.find(uuid);
  return record != records_.end() && record->second.present;
}

const oci::ProcGpu* GpuTable::FindProc(const std::string& uuid) const {
  const auto gpu = std::ranges::find(proc_gpus_, uuid, &oci::ProcGpu::uuid);
  return gpu == proc_gpus_.end() ? nullptr : &*gpu;
}

GpuTable::Record& GpuTable::Bind(int index, const std::string& uuid) {
  if (Record* before = At(index); before != nullptr && before->gpu.uuid != uuid) {
    before->present = false;
    before->health.OnMissing();
  }
  // The GPU may have had another index before other GPUs appeared or disappeared.
  std::ranges::replace(uuids_, uuid, std::string());
  uuids_[index] = uuid;
  const auto [entry, is_new] = records_.try_emplace(uuid, rules_);
  Record& record = entry->second;
  record.present = true;
  record.gpu.uuid = uuid;
  record.gpu.index = index;
  const auto remembered = remembered_.find(uuid);
  if (is_new && remembered != remembered_.end()) record.health.Remember(remembered->second);
  if (const oci::ProcGpu* known = is_new ? FindProc(uuid) : nullptr) {
    record.gpu.minor = known->minor;
    record.gpu.model = known->model;
    record.gpu.pci_bus_id = known->bus_id;
  }
  return record;
}

}  // namespace tessera::gpu
