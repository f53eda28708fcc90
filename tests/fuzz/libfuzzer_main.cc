// SPDX-License-Identifier: Apache-2.0
// One program per target: TESSERA_FUZZ_TARGET is a position in kTargets.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::kTargets[TESSERA_FUZZ_TARGET].run({reinterpret_cast<const char*>(data), size});
  return 0;
}
