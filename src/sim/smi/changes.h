// SPDX-License-Identifier: Apache-2.0
// The options of nvidia-smi that change GPUs, for root: modes, power limit, clocks, ECC.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/gpu.h"

namespace tessera::smi {

struct ChangeKind;

// A change that the command line requests.
struct Change {
  const ChangeKind* kind = nullptr;
  unsigned values[2] = {};  // such as minimum and maximum clock
};

// Sets `*change` to the kind of an option such as "-pl" or "--power-limit", without values. False:
// the option changes no GPU.
bool FindChange(std::string_view option, Change* change);
bool TakesValue(const Change& change);
// False: invalid value for the option.
bool ParseChangeValue(const std::string& text, Change* change);

// Changes the GPUs in order until a change fails, and appends the messages.
nvml::Return ApplyChange(const Change& change, const std::vector<NvmlGpu>& gpus, std::string* out);

}  // namespace tessera::smi
