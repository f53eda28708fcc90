// SPDX-License-Identifier: Apache-2.0
// MIG devices in the list of GPUs, and the subcommand mig.
#pragma once

#include <string>
#include <vector>

#include "src/sim/smi/gpu.h"
#include "src/sim/smi/options.h"

namespace tessera::smi {

// A line for each MIG device of the GPU, as below the GPU in -L.
std::string MigDeviceLines(const NvmlGpu& gpu);

// Runs a command on the GPUs in MIG mode, and appends its output.
nvml::Return RunMig(const MigOptions& options, const std::vector<NvmlGpu>& gpus, std::string* out);

}  // namespace tessera::smi
