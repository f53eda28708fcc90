// SPDX-License-Identifier: Apache-2.0
// Finds the driver's files below a root: /, /run/nvidia/driver of a driver container, or a simulated
// driver. Looks files up by name instead of listing folders of thousands, and never loads one.
// The root belongs to the host and is trusted; links in it are resolved inside of it. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/oci/capabilities.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

struct DriverLibrary {
  std::string host_path;  // links resolved
  std::string file_name;  // libcuda.so.550.54.15
  std::string soname;     // libcuda.so.1
  bool operator==(const DriverLibrary&) const = default;
};

struct DriverBinary {
  std::string host_path;
  std::string name;
};

// Something of the host that containers talk to.
struct DriverSocket {
  std::string host_path;
  std::string container_path;
};

struct DriverFiles {
  std::string root;
  std::string version;  // 550.54.15
  std::vector<DriverLibrary> libraries;
  std::vector<DriverBinary> binaries;
  std::vector<DriverSocket> sockets;
  // The simulated driver's shared state, as paths below the root (run/simgpu/state); empty for real
  // drivers.
  std::vector<std::string> state_files;
  // What was left out and why, for people.
  std::vector<std::string> notes;
};

// NOT_FOUND where the root, or the driver in it, is missing: the message lists the folders searched.
// INVALID_ARGUMENT where libcuda (compute) or libnvidia-ml (utility) is there but no library.
Result<DriverFiles> FindDriver(const std::string& root, Capabilities capabilities);

// One GPU, as the kernel module describes it.
struct ProcGpu {
  std::string bus_id;  // 0000:07:00.0
  std::string uuid;    // GPU-...
  std::string model;   // NVIDIA A100-SXM4-80GB
  int minor = -1;
};

// From <root>/proc/driver/nvidia/gpus, else from /proc. In the order of bus ids, which is the order
// of indices that nvidia-smi shows. NOT_FOUND where neither is there.
Result<std::vector<ProcGpu>> ListGpus(const std::string& root);
// The text of one "information" file.
ProcGpu ParseGpuInformation(std::string bus_id, std::string_view text);

}  // namespace tessera::oci
