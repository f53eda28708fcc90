// SPDX-License-Identifier: Apache-2.0
// nvidia-smi as a function: arguments to output and exit code. The codes are NVIDIA's: 2 wrong
// argument, 3 not available on this GPU, 4 no permission, 6 no such GPU, 9 no driver, 12 no
// library, 13 a function that the library lacks, 15 a lost GPU, 255 otherwise.
#pragma once

#include <string>
#include <vector>

namespace tessera::smi {

int Run(const std::vector<std::string>& arguments);

}  // namespace tessera::smi
