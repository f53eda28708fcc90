// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/driver_watch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/agent/node/validation_files.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/gpu/driver_files.h"
#include "src/gpu/nvml_library.h"

namespace tessera::agent {
namespace {

// Directories and files below a root. At least one of them changes when a driver is installed or
// removed.
constexpr std::array<std::string_view, 12> kWatchedPaths = {
    "",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/aarch64-linux-gnu/nvidia",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "usr/local/lib",
    "etc/ld.so.cache",
    "etc/alternatives",
    "proc/driver/nvidia",  // files of a simulated driver
};

}  // namespace

DriverWatch::DriverWatch(TaskRunner* runner, DriverWatchOptions options)
    : runner_(runner), options_(std::move(options)) {
  stamp_ = Stamp();
  FindDriver();
}

void DriverWatch::Start(OnChange on_change) {
  on_change_ = std::move(on_change);
  Tick();
}

DriverRoot DriverWatch::root() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return root_;
}

void DriverWatch::Tick() {
  std::string stamp = Stamp();
  if (stamp != stamp_) {
    stamp_ = std::move(stamp);
    FindDriver();
    on_change_();
  }
  runner_->PostDelayed(kInterval, [this, weak = weak_.Get()] {
    if (weak) Tick();
  });
}

std::vector<DriverRoot> DriverWatch::Roots() const {
  std::vector<DriverRoot> roots = options_.roots;
  if (options_.driver_ready.empty()) return roots;
  const std::string validated_root = DriverRootNamedIn(options_.driver_ready);
  if (validated_root.empty() ||
      std::ranges::count(roots, validated_root, &DriverRoot::host_path) != 0)
    return roots;
  roots.insert(roots.begin(), {validated_root, JoinPath(options_.host_mount, validated_root)});
  return roots;
}

std::string DriverWatch::Stamp() const {
  std::string stamp;
  for (const DriverRoot& root : Roots()) {
    for (const std::string_view path : kWatchedPaths) {
      const bool is_root = path.empty();
      stamp += FileFingerprint(is_root ? root.container_path : JoinPath(root.container_path, path));
      stamp += ' ';
    }
  }
  // The file exists while the kernel module is loaded, and NVML starts only with the module.
  stamp.append(PathExists("/proc/driver/nvidia/version") ? "module " : "- ");
  if (!options_.driver_ready.empty()) stamp += FileFingerprint(options_.driver_ready);
  return stamp;
}

void DriverWatch::FindDriver() {
  DriverFacts facts;
  for (const DriverRoot& root : Roots()) facts.candidates.push_back(ReadDriverCandidate(root));
  const DriverCandidate& chosen = facts.candidates[ChooseDriver(facts.candidates)];
  if (chosen.root != root()) {
    Log(Severity::kInfo, "found the root of the driver",
        {{"root", chosen.root.host_path},
         {"driver", chosen.nvml_version.empty() ? "none" : chosen.nvml_version}});
    if (options_.before_use) options_.before_use(chosen.root);
    const std::lock_guard<std::mutex> lock(mutex_);
    root_ = chosen.root;
  }
  facts_ = std::move(facts);
}

Result<std::shared_ptr<gpu::Nvml>> FoundDriverLoader::Load() {
  gpu::NvmlLibraryLoader loader(watch_->root().container_path);
  const std::string path = loader.FindLibrary();
  if (!path.empty() && !IsWholeElf(path)) {
    return Error(Code::kUnavailable,
                 "{} is not complete: it is still being written, or its disk was full", path);
  }
  return loader.Load();
}

std::string FoundDriverLoader::Fingerprint() {
  return gpu::NvmlLibraryLoader(watch_->root().container_path).Fingerprint();
}

}  // namespace tessera::agent
