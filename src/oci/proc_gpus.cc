// SPDX-License-Identifier: Apache-2.0
#include "src/oci/proc_gpus.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::oci {
namespace {

constexpr size_t kMaxInformationBytes = 64u << 10;
constexpr int64_t kMaxMinor = (1 << 20) - 1;  // the kernel's minors have 20 bits

}  // namespace

bool ProcGpu::HasUuid() const {
  return uuid.size() == 40 && uuid.starts_with("GPU-") &&
         std::ranges::all_of(uuid.substr(4),
                             [](unsigned char c) { return c == '-' || std::isxdigit(c) != 0; });
}

ProcGpu ParseProcGpu(std::string bus_id, std::string_view text) {
  ProcGpu gpu{.bus_id = std::move(bus_id)};
  for (const std::string_view line : Split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = Trim(line.substr(0, colon));
    const std::string_view value = Trim(line.substr(colon + 1));
    if (key == "Model") gpu.model = value;
    if (key == "GPU UUID") gpu.uuid = value;
    if (key != "Device Minor") continue;
    const Result<int64_t> minor = ParseInt(value);
    if (minor.ok() && *minor >= 0 && *minor <= kMaxMinor) gpu.minor = static_cast<int>(*minor);
  }
  return gpu;
}

Result<std::vector<ProcGpu>> ReadProcGpus(const std::string& proc_root) {
  const std::string dir = JoinPath(proc_root, "driver/nvidia/gpus");
  ASSIGN_OR_RETURN(const std::vector<std::string> bus_ids, ListDir(dir));
  std::vector<ProcGpu> gpus;
  for (const std::string& bus_id : bus_ids) {
    const std::string path = JoinPath(JoinPath(dir, bus_id), "information");
    gpus.push_back(ParseProcGpu(bus_id, ReadFile(path, kMaxInformationBytes).value_or("")));
  }
  return gpus;
}

}  // namespace tessera::oci
