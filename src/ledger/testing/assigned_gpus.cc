// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/testing/assigned_gpus.h"

#include <set>
#include <unordered_map>

#include "api/names.h"

namespace tessera::ledger::testing {

const device::Assignment& DecodeCached(const std::string& text) {
  constexpr size_t kMaxCached = 10'000;
  thread_local std::unordered_map<std::string, device::Assignment> cache;
  if (cache.size() >= kMaxCached) cache.clear();
  const auto [at, is_new] = cache.try_emplace(text);
  if (is_new) at->second = device::DecodeAssignment(text).value();
  return at->second;
}

void AssignedGpus::Add(const kube::PodObject& pod) {
  const auto text = pod.meta.annotations.find(names::kAnnotationAssignment);
  if (pod.node_name.empty() || pod.ended() || text == pod.meta.annotations.end()) return;
  std::set<std::string> init;
  for (const kube::Container& container : pod.containers) {
    if (container.kind == kube::ContainerKind::kInit) init.insert(container.name);
  }
  for (const auto& [container, shares] : DecodeCached(text->second).containers) {
    if (init.contains(container)) continue;
    for (const device::DeviceShare& share : shares) {
      const bool whole = share.compute == kWholeGpu;
      milli_[share.uuid] += share.compute.count();
      bytes_[share.uuid] += whole ? 0 : share.memory.count();
      whole_[share.uuid] += whole ? 1 : 0;
    }
  }
}

std::vector<std::string> AssignedGpus::AllOversubscribed(Bytes memory_of_a_gpu) const {
  std::vector<std::string> all;
  for (const auto& [uuid, milli] : milli_) {
    const int64_t bytes = bytes_.at(uuid);
    const int whole = whole_.at(uuid);
    if (milli > kWholeGpu.count() || bytes > memory_of_a_gpu.count() || whole > 1 ||
        (whole == 1 && bytes > 0)) {
      all.push_back(uuid);
    }
  }
  return all;
}

}  // namespace tessera::ledger::testing
