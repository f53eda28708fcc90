// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/proc_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::gpu {
namespace {

constexpr size_t kMaxInfoBytes = 64 << 10;
constexpr int64_t kMaxSmallInt = 1 << 20;

std::optional<int> ParseSmallInt(std::string_view text) {
  const Result<int64_t> number = ParseInt(Trim(text));
  if (!number.ok() || *number < -1 || *number > kMaxSmallInt) return std::nullopt;
  return static_cast<int>(*number);
}

bool IsUuid(std::string_view text) {
  return text.size() == 40 && text.starts_with("GPU-") &&
         std::ranges::all_of(text.substr(4),
                             [](unsigned char c) { return c == '-' || std::isxdigit(c) != 0; });
}

}  // namespace

std::optional<ProcGpu> ParseProcGpu(std::string_view text) {
  ProcGpu gpu;
  for (const std::string_view line : Split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = Trim(line.substr(0, colon));
    const std::string_view value = Trim(line.substr(colon + 1));
    if (key == "GPU UUID") gpu.uuid = value;
    if (key == "Model") gpu.model = value;
    if (key == "Bus Location") gpu.pci_bus_id = value;
    if (key == "Device Minor") gpu.minor = ParseSmallInt(value);
  }
  if (!IsUuid(gpu.uuid)) return std::nullopt;
  return gpu;
}

std::vector<ProcGpu> ReadProcGpus(const std::string& proc_root) {
  std::vector<ProcGpu> gpus;
  const std::string folder = proc_root + "/driver/nvidia/gpus";
  for (const std::string& name : ListDir(folder).value_or({})) {
    const Result<std::string> text =
        ReadFile(fmt::format("{}/{}/information", folder, name), kMaxInfoBytes);
    if (!text.ok()) continue;
    if (auto gpu = ParseProcGpu(*text)) gpus.push_back(std::move(*gpu));
  }
  return gpus;
}

std::optional<int> ReadNumaNode(const std::string& sys_root, const std::string& pci_bus_id) {
  const Result<std::string> text =
      ReadFile(fmt::format("{}/bus/pci/devices/{}/numa_node", sys_root, pci_bus_id), 64);
  if (!text.ok()) return std::nullopt;
  const std::optional<int> node = ParseSmallInt(*text);
  return node && *node >= 0 ? node : std::nullopt;
}

}  // namespace tessera::gpu
