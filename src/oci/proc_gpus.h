// SPDX-License-Identifier: Apache-2.0
// The GPUs that NVIDIA's kernel module lists in /proc/driver/nvidia/gpus, including GPUs that do
// not answer NVML. Threads: any; ReadProcGpus reads files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::oci {

struct ProcGpu {
  std::string bus_id;  // the name of its directory: 0000:07:00.0
  std::string uuid;    // GPU-..., with question marks before the GPU is initialized
  std::string model;   // NVIDIA A100-SXM4-80GB
  std::optional<int> minor;

  // False for a GPU that is not initialized yet, or whose file is not readable.
  bool HasUuid() const;
};

// Parses one file "information".
ProcGpu ParseProcGpu(std::string bus_id, std::string_view text);

// All GPUs below `proc_root`, in the order of bus ids, which is the order of nvidia-smi's indices.
// A GPU with an unreadable file has only its bus id. NOT_FOUND: the module is not loaded.
Result<std::vector<ProcGpu>> ReadProcGpus(const std::string& proc_root);

}  // namespace tessera::oci
