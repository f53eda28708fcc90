// SPDX-License-Identifier: Apache-2.0
// From what every GPU says about its links to one matrix. Pure. Private to this room.
#pragma once

#include <string>
#include <vector>

#include "src/device/gpu.h"
#include "src/gpu/probe.h"

namespace tessera::gpu {

struct LinkedGpu {
  const device::Gpu* gpu;
  const LinkReport* report;  // null while it has not answered
};

// NVLinks of a pair are the smaller of the two numbers that its ends report, direct ones or else
// those into NVSwitch; the PCIe level is what either end says. Where the ends disagree, or one
// could not be asked, `notes` gets a line and the pair the weaker link.
device::LinkMatrix MergeLinks(const std::vector<LinkedGpu>& gpus, std::vector<std::string>* notes);

}  // namespace tessera::gpu
