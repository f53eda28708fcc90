// SPDX-License-Identifier: Apache-2.0
// /etc/tessera/runtime.toml. Every key has a default, and so has the whole file. Any thread.
#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "api/names.h"
#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/runtime/program_search.h"

namespace tessera::runtime {

struct Options {
  // Low-level runtimes, names or paths; the first that exists is used.
  std::vector<std::string> runtimes{std::begin(kDefaultRuntimes), std::end(kDefaultRuntimes)};
  // Where the driver's files and the device nodes are. A grant says it itself.
  std::string driver_root = "/";
  std::string dev_root = "/";
  // Where trees of driver files are kept, each mounted into all containers that get the same files.
  // Empty: each container gets a mount for each file.
  std::string driver_tree_dir{names::kDriverTreeDir};
  std::string grant_socket{names::kGrantSocket};
  Duration grant_timeout = std::chrono::seconds(10);
  // Gets a line per container that was given GPUs, and per error; empty for none.
  std::string log;
  // Whether NVIDIA_VISIBLE_DEVICES gives GPUs outside Kubernetes. In Kubernetes it never does.
  bool accept_visible_devices_envvar = true;
  // In Kubernetes, privileged containers of these namespaces see all GPUs without a grant; those of
  // others see none.
  std::vector<std::string> privileged_namespaces = {"kube-system", "tessera-system"};
};

// A missing file gives the defaults. INVALID_ARGUMENT names file, line, key and what to do.
Result<Options> LoadOptions(const std::string& path);
Result<Options> ParseOptions(const std::string& text, const std::string& path);

}  // namespace tessera::runtime
