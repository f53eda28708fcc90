// SPDX-License-Identifier: Apache-2.0
// The content of one GPU's part of the log.
#pragma once

#include "src/sim/smi/gpu.h"
#include "src/sim/smi/log_tree.h"

namespace tessera::smi {

// A section whose children are the GPU's entries, in the order of the log.
LogNode GpuSections(const Gpu& gpu);

}  // namespace tessera::smi
