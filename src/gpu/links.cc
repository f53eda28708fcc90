// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/links.h"

#include <algorithm>

namespace tessera::gpu {
namespace {

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
  const device::PcieLevel there = LevelTo(a.report, *b.gpu);
  const device::PcieLevel back = LevelTo(b.report, *a.gpu);
  link.pcie = there == device::PcieLevel::kUnknown  ? back
              : back == device::PcieLevel::kUnknown ? there
                                                    : std::min(there, back);
  if (a.report == nullptr || b.report == nullptr) return link;
  const int forth_count = DirectLinks(*a.report, *b.gpu);
  const int back_count = DirectLinks(*b.report, *a.gpu);
  if (forth_count != back_count) {
    notes->push_back(fmt::format("GPU {} sees {} NVLinks to GPU {}, which sees {} back",
                                 a.gpu->index, forth_count, b.gpu->index, back_count));
  }
  int count = std::min(forth_count, back_count);
  if (count == 0) {
    count = std::min(a.report->switch_links, b.report->switch_links);
    link.via_nvswitch = count > 0;
  }
  link.nvlinks = static_cast<uint8_t>(std::min(count, device::kMaxNvLinks));
  return link;
}

}  // namespace

device::LinkMatrix MergeLinks(const std::vector<LinkedGpu>& gpus, std::vector<std::string>* notes) {
  device::LinkMatrix links(gpus.size());
  for (const LinkedGpu& gpu : gpus) {
    if (gpu.report == nullptr || gpu.report->problem.empty()) continue;
    notes->push_back(
        fmt::format("links of GPU {} are not all known: {}", gpu.gpu->index, gpu.report->problem));
  }
  for (size_t b = 0; b < gpus.size(); ++b) {
    for (size_t a = 0; a < b; ++a) links.Set(a, b, MergePair(gpus[a], gpus[b], notes));
  }
  return links;
}

}  // namespace tessera::gpu
