// SPDX-License-Identifier: Apache-2.0
// Settings from /etc/tessera/runtime.toml. The file and each of its keys are optional. Any thread.
#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "api/names.h"
#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/oci/dmem.h"
#include "src/runtime/program_search.h"

namespace tessera::runtime {

struct Options {
  // Names or paths of low-level runtimes; the first that exists is used.
  std::vector<std::string> runtimes{std::begin(kDefaultRuntimes), std::end(kDefaultRuntimes)};
  // Roots of the driver's files and of the device nodes, unless a grant names others.
  std::string driver_root = "/";
  std::string dev_root = "/";
  // Directory of the driver file trees; one tree is mounted into all containers that get the same
  // files. Empty: each container gets a mount for each file.
  std::string driver_tree_dir{names::kDriverTreeDir};
  std::string grant_socket{names::kGrantSocket};
  Duration grant_timeout = std::chrono::seconds(10);
  // Log file: a line for each container that got GPUs and for each error. Empty: no log.
  std::string log;
  // Whether NVIDIA_VISIBLE_DEVICES gives GPUs outside Kubernetes. It never does in Kubernetes.
  bool accept_visible_devices_envvar = true;
  // Namespaces whose privileged containers see all GPUs without a grant. Privileged containers of
  // other namespaces see none.
  std::vector<std::string> privileged_namespaces = {"kube-system",
                                                    std::string(names::kSystemNamespace)};
  // The cgroup file system. Not a key of the file: only tests change it.
  std::string cgroup_root{oci::kCgroupRoot};
};

// A missing file gives the defaults. INVALID_ARGUMENT names file, line, key and the remedy.
Result<Options> LoadOptions(const std::string& path);
Result<Options> ParseOptions(const std::string& text, const std::string& path);

}  // namespace tessera::runtime
