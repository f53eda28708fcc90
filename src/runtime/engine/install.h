// SPDX-License-Identifier: Apache-2.0
// Puts the program that runs, and its settings, onto the host. For a container made from nothing
// but this program, which has no cp. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/runtime/engine/host_root.h"

namespace tessera::engine {

// Copies `from` (this process's view) to `to` (host path). There is never a moment without a whole
// program at `to`. True if something was written, false if it was there already.
Result<bool> InstallProgram(const HostRoot& host, const std::string& from, const std::string& to);

// The same for the limiter's libraries, which stand in ../lib beside each of the programs `from`
// and `to`. False also where there are none beside `from`: a program that was installed without
// them.
Result<bool> InstallLibraries(const HostRoot& host, const std::string& from, const std::string& to);

// Settings of the runtime that were given as flags; nothing: not given.
struct RuntimeSettings {
  std::optional<std::string> driver_root;
  std::optional<std::string> dev_root;
  std::optional<std::string> grant_socket;
  std::vector<std::string> runtimes;

  bool Any() const { return driver_root || dev_root || grant_socket || !runtimes.empty(); }
};

// Makes runtime.toml, or sets just these keys in the one that is there. True if something changed.
// A file that does not parse is kept as <path>.damaged, and made anew: with it no container of this
// node would get a GPU.
Result<bool> WriteRuntimeSettings(const HostRoot& host, const std::string& path,
                                  const RuntimeSettings& settings);

}  // namespace tessera::engine
