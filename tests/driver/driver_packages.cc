// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/driver_packages.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "src/base/file.h"
#include "src/base/subprocess.h"

namespace tessera::testing {
namespace {

std::string CacheDir(const std::string& folder) {
  const char* cache = ::getenv("TESSERA_CACHE");
  const char* home = ::getenv("HOME");
  const std::string dir =
      cache != nullptr ? cache : JoinPath(home != nullptr ? home : "/root", ".cache/tessera");
  return JoinPath(dir, folder);
}

std::set<std::string> DeviceNodes() {
  std::set<std::string> nodes;
  for (const auto& entry : std::filesystem::directory_iterator("/dev")) {
    if (entry.path().filename().string().starts_with("nvidia")) nodes.insert(entry.path());
  }
  return nodes;
}

}  // namespace

NoNewDeviceNodes::NoNewDeviceNodes() : before_(DeviceNodes()) {}
NoNewDeviceNodes::~NoNewDeviceNodes() {
  for (const std::string& node : DeviceNodes()) {
    if (!before_.contains(node)) ::unlink(node.c_str());
  }
}

Result<std::string> FetchPackages(const std::string& folder, const std::string& component,
                                  const std::vector<std::string>& items) {
  std::vector<std::string> command = {FETCH_DEBS, CacheDir(folder), component};
  command.insert(command.end(), items.begin(), items.end());
  ASSIGN_OR_RETURN(const auto fetched, RunProgram(command, std::chrono::seconds(240)));
  if (fetched.exit_code != 0) return Status(Code::kUnavailable, fetched.err);
  return CacheDir(folder);
}

Result<std::string> FetchDriverPackages(const Generation& generation) {
  const std::string common =
      ":libcuda1,libnvidia-ml1,nvidia-smi,libglx-nvidia0,libegl-nvidia0,nvidia-vulkan-common,"
      "nvidia-egl-common";
  ASSIGN_OR_RETURN(
      const std::string dir,
      FetchPackages(
          "nvidia-packages", "non-free",
          {"470=bookworm:libnvidia-tesla-470-cuda1,libnvidia-tesla-470-ml1,nvidia-tesla-470-smi",
           "535=bookworm" + common, "550=trixie" + common}));
  return JoinPath(dir, generation.name);
}

}  // namespace tessera::testing
