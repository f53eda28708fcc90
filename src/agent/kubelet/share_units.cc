// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/share_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "api/names.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

constexpr int kBase = 36;
constexpr size_t kGpuNameLength = 3;
constexpr uint64_t kGpuNames = 36 * 36 * 36;
constexpr int kCoresPerGpu = static_cast<int>(kWholeGpu.count() / device::kVcudaCore.count());

std::string Base36(uint64_t value, size_t width) {
  std::string text;
  do {
    text.insert(text.begin(), "0123456789abcdefghijklmnopqrstuvwxyz"[value % kBase]);
    value /= kBase;
  } while (value > 0);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

// The name of a GPU follows from its UUID, so it does not depend on other GPUs of the node. If two
// names are equal, the second GPU gets the next free name.
std::string NameOf(const std::string& uuid, std::set<uint64_t>* used_names) {
  uint64_t hash = Fnv1a(uuid) % kGpuNames;
  while (!used_names->insert(hash).second) hash = (hash + 1) % kGpuNames;
  return Base36(hash, kGpuNameLength);
}

// The size of the list in protobuf. Each ID needs tag and length of the entry, of the ID and of its
// health, and the longer of the two health words.
size_t ListBytes(const ShareUnits& units) {
  constexpr size_t kOverheadPerId = 2 + 2 + 2 + sizeof("Unhealthy") - 1;
  size_t bytes = 0;
  for (const ShareUnits::GpuUnits& gpu : units.gpus) {
    if (gpu.count == 0) continue;
    const size_t longest = ShareUnits::IdOf(gpu, gpu.count - 1).size();
    bytes += static_cast<size_t>(gpu.count) * (kOverheadPerId + longest);
  }
  return bytes;
}

// `unit_memory`: as in ShareUnits.
ShareUnits Cut(const device::NodeInventory& inventory, std::string_view resource, char letter,
               Bytes unit_memory) {
  ShareUnits units{.resource = std::string(resource),
                   .dialect = device::DialectOfResource(resource).value(),
                   .unit_memory = unit_memory};
  std::set<uint64_t> used_names;
  for (const device::Gpu& gpu : inventory.gpus) {
    const std::string name = NameOf(gpu.uuid, &used_names);
    if (gpu.mig || gpu.memory <= Bytes(0)) continue;
    const bool healthy = gpu.health.ok() && gpu.minor.has_value();
    const int64_t count =
        unit_memory == Bytes(0) ? kCoresPerGpu : gpu.memory.count() / unit_memory.count();
    units.gpus.push_back({gpu.uuid, letter + name, static_cast<int>(count), healthy});
  }
  // Only a node with hundreds of GPUs exceeds the limit. It offers fewer units, never larger units.
  while (ListBytes(units) > kMaxListBytes && resource != names::kResourceGpuMem) {
    for (ShareUnits::GpuUnits& gpu : units.gpus) gpu.count -= gpu.count / 16;
  }
  return units;
}

}  // namespace

std::string ShareUnits::IdOf(const GpuUnits& gpu, int number) {
  return gpu.prefix + Base36(static_cast<uint64_t>(number), 1);
}

bool ShareUnits::Has(std::string_view id) const {
  constexpr size_t kPrefix = 1 + kGpuNameLength;
  if (id.size() <= kPrefix) return false;
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const GpuUnits& gpu) {
    return gpu.prefix == id.substr(0, kPrefix);
  });
  if (found == gpus.end()) return false;
  int number = 0;
  const auto [end, error] =
      std::from_chars(id.data() + kPrefix, id.data() + id.size(), number, kBase);
  return error == std::errc() && end == id.data() + id.size() && number >= 0 &&
         number < found->count;
}

int64_t ShareUnits::count() const {
  int64_t sum = 0;
  for (const GpuUnits& gpu : gpus) sum += gpu.count;
  return sum;
}

SharePlan::SharePlan(const device::NodeInventory& inventory, device::MemoryUnit gpu_mem_unit)
    : unit_(gpu_mem_unit) {
  ShareUnits gpu_mem = Cut(inventory, names::kResourceGpuMem, 'm', device::SizeOf(unit_));
  if (ListBytes(gpu_mem) > kMaxListBytes) {
    unit_ = device::MemoryUnit::kGiB;
    note_ = fmt::format(
        "{} counts GiB on this node, not MiB: a list of {} device IDs would be too long for the "
        "kubelet; schedule pods that count MiB on other nodes",
        names::kResourceGpuMem, gpu_mem.count());
    gpu_mem = Cut(inventory, names::kResourceGpuMem, 'm', device::SizeOf(unit_));
  }
  resources_.push_back(std::move(gpu_mem));
  resources_.push_back(Cut(inventory, names::kResourceVcudaCore, 'c', Bytes(0)));
  resources_.push_back(Cut(inventory, names::kResourceVcudaMemory, 'v', device::kVcudaMemoryBlock));
}

const ShareUnits* SharePlan::Find(std::string_view resource) const {
  const auto found =
      std::find_if(resources_.begin(), resources_.end(),
                   [&](const ShareUnits& units) { return units.resource == resource; });
  return found == resources_.end() ? nullptr : &*found;
}

}  // namespace tessera::agent
