// SPDX-License-Identifier: Apache-2.0
// Gives a container devices and driver files by editing its config.json and staging a directory in
// its bundle. It runs no hooks and no programs, writes nothing to the host's /dev, and writes to
// the container's root file system only the files of its dynamic linker (linker_setup.h).
//
//   /dev/nvidia0, ...            linux.devices, with a rule for the cgroup
//   /dev/tessera/lib, bin, run   a bind mount of the host's shared tree. If that is impossible, a
//                                bind mount of a staged directory, and in it one bind mount for
//                                each file of the driver. Read only; SONAMEs are links in it
//   /dev/tessera/real            in a limited container: the driver's libcuda. The limiter replaces
//                                it in lib, and is mounted over copies in the image
//                                (image_libraries.h)
//   /dev/tessera/limits, usage   in a limited container: the files of the limiter
//   dmem.max                     in a limited container, in linux.resources.unified: the kernel's
//                                own limit, where it has one (dmem.h)
//   /etc/ld.so.cache             a merged cache, written to a writable root or mounted over the
//                                file of a read-only one; else LD_LIBRARY_PATH
//   /usr/lib/x86_64-linux-gnu    links to the libraries, for programs that search directories
//                                (linker_setup.h)
//   /dev/tessera/share           files for loaders of Vulkan, EGL and GBM, whose environment
//                                variables get this directory
//   PATH                         ends with /dev/tessera/bin
//
// No path that an image controls is ever the source of a mount. src/runtime decides which devices a
// container gets. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/oci/config_document.h"
#include "src/oci/device_node.h"
#include "src/oci/driver_root.h"
#include "src/oci/linker_setup.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

// Enforces a container's share of a GPU.
struct Limiter {
  std::string library_dir;  // host path of the directory with the libraries below
  std::string limits_dir;   // host path of the container's limits; mounted read-only
};
// A library of the driver that the limiter replaces. The names are those of the limiter's files,
// for containers with driver files in /dev/tessera and in /run/tessera.
struct LimiterLibrary {
  std::string_view soname;
  std::string_view file_for_dev, file_for_run;
};
inline constexpr LimiterLibrary kLimiterLibraries[] = {
    {"libcuda.so.1", "libtessera-cuda-dev.so", "libtessera-cuda-run.so"},
    {"libnvidia-ml.so.1", "libtessera-nvml-dev.so", "libtessera-nvml-run.so"},
};
// The directory of the limiter's libraries for an installed program: <prefix>/lib for
// <prefix>/bin/PROGRAM.
std::string LimiterDirBeside(std::string_view program);

struct Injection {
  std::vector<DeviceNode> devices;
  std::vector<DeviceNode> denied_devices;  // other GPUs, for a container that may open every GPU
  DriverFiles driver;
  std::optional<Limiter> limiter;
  std::string dmem_max;       // for the container's cgroup (dmem.h); empty: not set
  std::vector<Mount> mounts;  // of the grant; mounts below /dev/tessera move with the driver files
  std::vector<std::pair<std::string, std::string>> env;
  // The host's directory for shared trees of driver files; empty: no shared trees.
  std::string tree_dir;
};

// The location of driver files in this container, determined before any change.
struct InjectionTarget {
  std::string driver_dir;  // /dev/tessera, or /run/tessera
  RootedDir root;          // the container's root file system
  LinkerSetup linker;
  // The image's directory, relative to the root, for links to the libraries; empty: no links.
  std::string library_dir;
};

// Variables with lists of directories, to which injection may add a directory.
std::vector<std::string_view> DirListVariables();

// Removes the driver's own libraries (.../real), which the limiter replaces, from LD_PRELOAD and
// LD_AUDIT. A process that loaded such a libcuda.so.1 first would never load the limiter.
void RemovePreloadsOfDriver(EnvList* env);

// FAILED_PRECONDITION if the container has no tmpfs at /dev or /run, or its image has a symbolic
// link there; the message names the remedy. Ignores mounts from the stage or from `tree_dir` that
// an earlier start of the bundle added.
Result<InjectionTarget> FindInjectionTarget(const ConfigDocument& document,
                                            const std::string& tree_dir);

// Removes the nodes of all GPUs, and closes `gpus` in a cgroup that allows every GPU.
Status DenyGpus(const std::vector<DeviceNode>& gpus, ConfigDocument* document);

// Stages files and edits the document, but does not save it. Returns, for administrators, how the
// driver's files get into the container. After an error at most the staged directory remains.
Result<std::string> Inject(const Injection& injection, const InjectionTarget& target,
                           ConfigDocument* document);

}  // namespace tessera::oci
