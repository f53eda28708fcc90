// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "src/base/status.h"

namespace tessera::device {
namespace {

struct LevelInfo {
  PcieLevel level;
  int score;
  std::string_view name;
};
constexpr std::array<LevelInfo, 7> kLevels = {{
    {PcieLevel::kUnknown, 0, "?"},
    {PcieLevel::kSystem, 10, "SYS"},
    {PcieLevel::kNode, 20, "NODE"},
    {PcieLevel::kHostBridge, 30, "PHB"},
    {PcieLevel::kMultiSwitch, 40, "PXB"},
    {PcieLevel::kSingleSwitch, 50, "PIX"},
    {PcieLevel::kSameBoard, 60, "PSB"},
}};
constexpr int kScorePerNvLink = 100;

const LevelInfo& InfoOf(PcieLevel level) { return kLevels[static_cast<size_t>(level)]; }

// Parses "NV12" or "NVS18" into `link`.
bool ParseNvLinks(std::string_view name, Link* link) {
  if (!name.starts_with("NV")) return false;
  name.remove_prefix(2);
  if (name.starts_with('S')) {
    link->via_nvswitch = true;
    name.remove_prefix(1);
  }
  if (name.empty() || name[0] == '0') return false;
  int count = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), count);
  if (error != std::errc() || end != name.data() + name.size()) return false;
  if (count < 1 || count > kMaxNvLinks) return false;
  link->nvlinks = static_cast<uint8_t>(count);
  return true;
}

}  // namespace

std::string_view NameOf(Health::State state) {
  switch (state) {
    case Health::State::kHealthy:
      return "healthy";
    case Health::State::kSuspect:
      return "suspect";
    case Health::State::kRecovering:
      return "recovering";
    case Health::State::kWithheld:
      return "withheld";
    case Health::State::kUnhealthy:
      break;
  }
  return "unhealthy";
}

int ScoreOf(const Link& link) {
  return InfoOf(link.pcie).score + kScorePerNvLink * std::min<int>(link.nvlinks, kMaxNvLinks);
}

std::string NameOf(const Link& link) {
  const std::string_view level = InfoOf(link.pcie).name;
  if (link.nvlinks == 0) return std::string(level);
  std::string name = fmt::format("NV{}{}", link.via_nvswitch ? "S" : "", link.nvlinks);
  if (link.pcie != PcieLevel::kUnknown) name.append("+").append(level);
  return name;
}

std::optional<Link> LinkFromName(std::string_view name) {
  Link link;
  std::string_view level = name;
  if (name.starts_with("NV")) {
    const size_t plus = name.find('+');
    if (!ParseNvLinks(name.substr(0, plus), &link)) return std::nullopt;
    if (plus == std::string_view::npos) return link;
    level = name.substr(plus + 1);
    if (level == InfoOf(PcieLevel::kUnknown).name) return std::nullopt;
  }
  for (const LevelInfo& info : kLevels) {
    if (info.name != level) continue;
    link.pcie = info.level;
    return link;
  }
  return std::nullopt;
}

LinkMatrix::LinkMatrix(size_t size) : size_(size), links_(size < 2 ? 0 : size * (size - 1) / 2) {}

size_t LinkMatrix::PositionOf(size_t a, size_t b) const {
  TESSERA_CHECK(a != b && a < size_ && b < size_);
  if (a > b) std::swap(a, b);
  return b * (b - 1) / 2 + a;
}

const Gpu* NodeInventory::Find(std::string_view uuid) const {
  const auto gpu = std::ranges::find(gpus, uuid, &Gpu::uuid);
  return gpu == gpus.end() ? nullptr : &*gpu;
}

const Gpu* NodeInventory::FindByMinor(int minor) const {
  const auto gpu = std::ranges::find(gpus, minor, &Gpu::minor);
  return gpu == gpus.end() ? nullptr : &*gpu;
}

const MigSlice* NodeInventory::FindMigSlice(std::string_view uuid) const {
  for (const Gpu& gpu : gpus) {
    if (!gpu.mig) continue;
    for (const MigSlice& slice : *gpu.mig) {
      if (slice.uuid == uuid) return &slice;
    }
  }
  return nullptr;
}

size_t NodeInventory::healthy_count() const {
  return std::count_if(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.health.ok(); });
}

}  // namespace tessera::device
