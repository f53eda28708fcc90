// SPDX-License-Identifier: Apache-2.0
// -q and -q -x: all values of each GPU, in the order and under the names of NVIDIA's tool
// (nvsmi_device_v12), which Telegraf and others parse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/gpu.h"
#include "src/sim/smi/log_tree.h"
#include "src/sim/smi/views.h"

namespace tessera::smi {

// `display_types` is the list of -d ("MEMORY,UTILIZATION"), empty for all. False: unknown type;
// *out has the message.
bool GpuLogText(const std::string& date, const Versions& versions, const std::vector<NvmlGpu>& gpus,
                size_t attached, std::string_view display_types, std::string* out);
std::string GpuLogXml(const std::string& date, const Versions& versions,
                      const std::vector<NvmlGpu>& gpus, size_t attached);

// The part of the log for one GPU: a section with the GPU's entries as children, in the order of
// the log (gpu_sections.cc).
LogNode GpuSections(const NvmlGpu& gpu);

}  // namespace tessera::smi
