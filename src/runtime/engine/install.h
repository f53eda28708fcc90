// SPDX-License-Identifier: Apache-2.0
// Installs this program and its settings on the host. Needed because the container image has no cp.
// Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/runtime/engine/host_root.h"

namespace tessera::engine {

// Copies `from`, a path as this process sees it, to the host path `to` atomically. Returns whether
// it wrote: false if `to` already has the same content.
Result<bool> InstallProgram(const HostRoot& host, const std::string& from, const std::string& to);

// Copies the limiter's libraries, which are in ../lib of each program's directory. Returns false
// also if `from` was installed without them.
Result<bool> InstallLibraries(const HostRoot& host, const std::string& from, const std::string& to);

// Settings of the runtime from flags; nullopt: flag not given.
struct RuntimeSettings {
  std::optional<std::string> driver_root;
  std::optional<std::string> dev_root;
  std::optional<std::string> grant_socket;
  std::vector<std::string> runtimes;

  bool AnySet() const { return driver_root || dev_root || grant_socket || !runtimes.empty(); }
};

// Creates runtime.toml, or sets only these keys in an existing file. Returns whether it changed. A
// file that does not parse is kept as <path>.damaged and replaced, because it would keep every
// container of the node from its GPU.
Result<bool> WriteRuntimeSettings(const HostRoot& host, const std::string& path,
                                  const RuntimeSettings& settings);

}  // namespace tessera::engine
