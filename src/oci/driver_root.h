// SPDX-License-Identifier: Apache-2.0
// Finds the driver's files below a root: /, /run/nvidia/driver of a driver container, or the root
// of a simulated driver. The driver's version is that of libcuda, found through links (including
// alternatives) and the root's linker cache. A library belongs to the driver if its name ends in
// that version. Loads no library. The root belongs to the host and is trusted; links are resolved
// inside it. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/oci/capabilities.h"
#include "src/oci/proc_gpus.h"
#include "src/oci/rooted_dir.h"

namespace tessera::oci {

struct DriverLibrary {
  std::string host_path;  // links resolved
  std::string file_name;  // libcuda.so.550.54.15
  std::string soname;     // libcuda.so.1
  bool operator==(const DriverLibrary&) const = default;
};

struct FoundFile {
  std::string host_path;  // links resolved
  std::string name;
};

struct DriverFiles {
  std::string root;
  std::string version;  // 550.54.15
  std::vector<DriverLibrary> libraries;
  std::vector<FoundFile> binaries;
  std::vector<FoundFile> data_files;  // named vulkan/icd.d/nvidia_icd.json
  // Sockets with which containers communicate, named by their absolute paths in a container.
  std::vector<FoundFile> sockets;
  // The simulated driver's shared state, as paths relative to the root (run/simgpu/state); empty
  // for real drivers.
  std::vector<std::string> state_files;
  // Skipped files with the reasons, as text for administrators.
  std::vector<std::string> notes;
};

// NOT_FOUND if the root, or the driver in it, is missing: the message lists the searched
// directories. INVALID_ARGUMENT if libcuda (compute) or libnvidia-ml (utility) exists but is not a
// library. FAILED_PRECONDITION if the driver lacks files for video, graphics or display; "all"
// accepts a driver without these files.
Result<DriverFiles> FindDriver(const std::string& root, Capabilities capabilities);

// The host path, without links, of the file that programs load as <stem>.so.1 ("libnvidia-ml");
// searched like FindDriver. NOT_FOUND: see FindDriver.
Result<std::string> FindDriverLibrary(const std::string& root, std::string_view stem);

// The GPUs of <root>/proc, or of /proc if the root has none. NOT_FOUND if neither lists GPUs.
Result<std::vector<ProcGpu>> ListGpus(const std::string& root);
// A GPU's nodes of the Direct Rendering Manager, relative to /dev: dri/card1, dri/renderD128. Empty
// if the module nvidia-drm is not loaded.
std::vector<std::string> DrmNodes(const std::string& root, const std::string& bus_id);

}  // namespace tessera::oci
