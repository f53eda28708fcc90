// SPDX-License-Identifier: Apache-2.0
// The part of the log for one GPU.
#pragma once

#include "src/sim/smi/gpu.h"
#include "src/sim/smi/log_tree.h"

namespace tessera::smi {

// A section with the GPU's entries as children, in the order of the log.
LogNode GpuSections(const NvmlGpu& gpu);

}  // namespace tessera::smi
