// SPDX-License-Identifier: Apache-2.0
// The options that change GPUs: modes, power limit, clocks, ECC. Only root may.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/sim/smi/gpu.h"

namespace tessera::smi {

struct ChangeKind;

// A change as the command line asks for it.
struct Change {
  const ChangeKind* kind = nullptr;
  unsigned values[2] = {};  // such as the lowest and the highest clock
};

// Starts the change of an option in its short or long spelling, "-pl" or "--power-limit"; false for
// every other option.
bool FindChange(std::string_view option, Change* change);
bool TakesValue(const Change& change);
// False for a value that is none of the option's.
bool ParseChangeValue(const std::string& text, Change* change);

// Changes one GPU after the other until one fails, and says what was done.
nvml::Return ApplyChange(const Change& change, const std::vector<Gpu>& gpus, std::string* out);

}  // namespace tessera::smi
