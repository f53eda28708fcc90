// SPDX-License-Identifier: Apache-2.0
#include "src/oci/dmem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::oci {
namespace {

bool HasWord(const std::string& path, std::string_view word) {
  const Result<std::string> text = ReadFile(path);
  if (!text.ok()) return false;
  const auto words = Split(Trim(*text), ' ');
  return std::ranges::find(words, word) != words.end();
}

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Whether the region is the GPU's own memory, not system memory that the GPU may use.
bool IsMemoryOf(const DmemRegion& region, std::string_view bus_id) {
  const auto parts = Split(region.name, '/');
  return parts.size() == 3 && EqualIgnoringCase(parts[1], bus_id) && parts[2].starts_with("vram");
}

}  // namespace

std::vector<DmemRegion> ParseDmemCapacity(std::string_view text) {
  std::vector<DmemRegion> regions;
  for (const std::string_view line : Split(text, '\n')) {
    const size_t space = line.rfind(' ');
    if (space == std::string_view::npos || space == 0) continue;
    const Result<int64_t> bytes = ParseInt(line.substr(space + 1));
    if (!bytes.ok() || *bytes <= 0) continue;
    regions.push_back({std::string(line.substr(0, space)), Bytes(*bytes)});
  }
  return regions;
}

std::vector<DmemRegion> ReadDmemRegions(const std::string& cgroup_root) {
  // cgroup v1 has no cgroup.controllers in its root. A child cgroup has dmem.max only if its
  // parent's cgroup.subtree_control lists dmem.
  if (!HasWord(JoinPath(cgroup_root, "cgroup.controllers"), "dmem") ||
      !HasWord(JoinPath(cgroup_root, "cgroup.subtree_control"), "dmem")) {
    return {};
  }
  const Result<std::string> text = ReadFile(JoinPath(cgroup_root, "dmem.capacity"));
  return text.ok() ? ParseDmemCapacity(*text) : std::vector<DmemRegion>();
}

std::string DmemMaxValue(const std::vector<DmemRegion>& regions,
                         const std::vector<DmemShare>& shares) {
  std::string lines;
  for (const DmemShare& share : shares) {
    if (share.memory <= Bytes(0)) continue;
    const Bytes limit = share.memory + kDmemAllowance;
    for (const DmemRegion& region : regions) {
      if (!IsMemoryOf(region, share.bus_id) || limit >= region.capacity) continue;
      lines += fmt::format("{}{} {}", lines.empty() ? "" : "\n", region.name, limit.count());
    }
  }
  return lines;
}

}  // namespace tessera::oci
