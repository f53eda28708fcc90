// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/gpu_table.h"

#include <algorithm>
#include <utility>

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
  gpu->mig_capable |= report.mig_capable;
  gpu->fabric = report.fabric;
}

int DirectLinks(const LinkReport& from, const device::Gpu& to) {
  const auto links = from.nvlinks.find(to.pci_bus_id);
  return links == from.nvlinks.end() ? 0 : links->second;
}

device::PcieLevel LevelTo(const LinkReport* from, const device::Gpu& to) {
  if (from == nullptr) return device::PcieLevel::kUnknown;
  const auto level = from->levels.find(to.uuid);
  return level == from->levels.end() ? device::PcieLevel::kUnknown : level->second;
}

device::Link MergePair(const LinkedGpu& a, const LinkedGpu& b, std::vector<std::string>* notes) {
  device::Link link;
  const device::PcieLevel level_from_a = LevelTo(a.report, *b.gpu);
  const device::PcieLevel level_from_b = LevelTo(b.report, *a.gpu);
  link.pcie = level_from_a == device::PcieLevel::kUnknown   ? level_from_b
              : level_from_b == device::PcieLevel::kUnknown ? level_from_a
                                                            : std::min(level_from_a, level_from_b);
  if (a.report == nullptr || b.report == nullptr) return link;
  const int count_from_a = DirectLinks(*a.report, *b.gpu);
  const int count_from_b = DirectLinks(*b.report, *a.gpu);
  if (count_from_a != count_from_b) {
    notes->push_back(fmt::format("GPU {} reports {} NVLinks to GPU {}, which reports {} back",
                                 a.gpu->index, count_from_a, b.gpu->index, count_from_b));
  }
  int count = std::min(count_from_a, count_from_b);
  if (count == 0) {
    count = std::min(a.report->switch_links, b.report->switch_links);
    link.via_nvswitch = count > 0;
  }
  link.nvlinks = static_cast<uint8_t>(std::min(count, device::kMaxNvLinks));
  return link;
}

}  // namespace

void GpuTable::Resize(int count, std::vector<oci::ProcGpu> proc_gpus) {
  for (int index = count; index < size(); ++index) {
    if (GpuRecord* record = At(index)) {
      record->present = false;
      record->health.OnMissing();
    }
  }
  uuids_.resize(count);
  failures_.resize(count);
  proc_gpus_ = std::move(proc_gpus);
}

GpuTable::GpuRecord* GpuTable::OnIdentifyAnswer(int index, const IdentityReport& report,
                                                MonotonicTime now) {
  const std::string uuid =
      report.identified ? report.gpu.uuid : GuessUuid(index, report.gpu.pci_bus_id);
  failures_[index] = report.status.message();
  if (uuid.empty()) return nullptr;
  GpuRecord& record = AssignIndex(index, uuid);
  Update(report.gpu, &record.gpu);
  if (report.handle != nullptr) record.handle = report.handle;
  record.supports_memory_info = report.supports_memory_info;
  record.supports_fabric_info = report.supports_fabric_info;
  if (report.status.ok()) record.health.OnMigMode(report.mig);
  record.health.OnAnswer(report.status, std::nullopt, now);
  return &record;
}

GpuTable::GpuRecord* GpuTable::OnHang(int index, NvmlCall call) {
  failures_[index] = fmt::format("NVML call {} did not return", NvmlCallName(call));
  const std::string uuid = GuessUuid(index, "");
  if (uuid.empty()) return nullptr;
  GpuRecord& record = AssignIndex(index, uuid);
  record.health.OnHang(call);
  return &record;
}

GpuTable::GpuRecord* GpuTable::At(int index) {
  if (uuids_[index].empty()) return nullptr;
  return &records_.at(uuids_[index]);
}

GpuTable::GpuRecord* GpuTable::FindByHandle(NvmlDevice handle) {
  for (auto& [uuid, record] : records_) {
    if (record.present && record.handle == handle) return &record;
  }
  return nullptr;
}

void GpuTable::ForgetAbsent() {
  std::erase_if(records_, [](const auto& entry) { return !entry.second.present; });
}

bool GpuTable::all_identified() const {
  return std::ranges::none_of(uuids_, [](const std::string& uuid) { return uuid.empty(); });
}

UnrepairedXids GpuTable::unrepaired() const {
  // GPUs that have not appeared since the restart keep their XIDs.
  UnrepairedXids all = remembered_xids_;
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

void GpuTable::FillInventory(device::NodeInventory* inventory) const {
  std::vector<const GpuRecord*> order;
  for (const auto& [uuid, record] : records_) order.push_back(&record);
  std::ranges::stable_sort(order, {}, [](const GpuRecord* record) { return record->gpu.index; });
  std::vector<LinkedGpu> linked;
  for (const GpuRecord* record : order) {
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
        fmt::format("cannot identify GPU {}: {}", index,
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

const oci::ProcGpu* GpuTable::FindProcGpu(const std::string& uuid) const {
  const auto gpu = std::ranges::find(proc_gpus_, uuid, &oci::ProcGpu::uuid);
  return gpu == proc_gpus_.end() ? nullptr : &*gpu;
}

GpuTable::GpuRecord& GpuTable::AssignIndex(int index, const std::string& uuid) {
  if (GpuRecord* before = At(index); before != nullptr && before->gpu.uuid != uuid) {
    before->present = false;
    before->health.OnMissing();
  }
  // The GPU may have had another index before other GPUs appeared or disappeared.
  std::ranges::replace(uuids_, uuid, std::string());
  uuids_[index] = uuid;
  const auto [entry, is_new] = records_.try_emplace(uuid, rules_);
  GpuRecord& record = entry->second;
  record.present = true;
  record.gpu.uuid = uuid;
  record.gpu.index = index;
  const auto remembered = remembered_xids_.find(uuid);
  if (is_new && remembered != remembered_xids_.end()) record.health.RestoreXid(remembered->second);
  if (const oci::ProcGpu* known = is_new ? FindProcGpu(uuid) : nullptr) {
    record.gpu.minor = known->minor;
    record.gpu.model = known->model;
    record.gpu.pci_bus_id = known->bus_id;
  }
  return record;
}

device::LinkMatrix MergeLinks(const std::vector<LinkedGpu>& gpus, std::vector<std::string>* notes) {
  device::LinkMatrix links(gpus.size());
  for (const LinkedGpu& gpu : gpus) {
    if (gpu.report == nullptr || gpu.report->problem.empty()) continue;
    notes->push_back(
        fmt::format("some links of GPU {} are unknown: {}", gpu.gpu->index, gpu.report->problem));
  }
  for (size_t b = 0; b < gpus.size(); ++b) {
    for (size_t a = 0; a < b; ++a) links.Set(a, b, MergePair(gpus[a], gpus[b], notes));
  }
  return links;
}

}  // namespace tessera::gpu
