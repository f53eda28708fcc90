// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/gpu_hardware.h"

#include <algorithm>
#include <string_view>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

constexpr std::string_view kNvidia = "0x10de";
constexpr std::string_view kDisplayController = "0x03";

bool FileStartsWith(const std::string& path, std::string_view prefix) {
  const Result<std::string> text = ReadFile(path);
  return text.ok() && text->starts_with(prefix);
}

}  // namespace

bool HasGpuHardware(const std::string& sys_root) {
  const std::string devices = JoinPath(sys_root, "bus/pci/devices");
  const Result<std::vector<std::string>> names = ListDir(devices);
  return names.ok() && std::any_of(names->begin(), names->end(), [&](const std::string& name) {
           const std::string device = JoinPath(devices, name);
           return FileStartsWith(JoinPath(device, "vendor"), kNvidia) &&
                  FileStartsWith(JoinPath(device, "class"), kDisplayController);
         });
}

}  // namespace tessera::agent
