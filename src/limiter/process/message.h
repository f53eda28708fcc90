// SPDX-License-Identifier: Apache-2.0
// Messages on standard error for the user of the program: "tessera: ...". At most ten lines a
// minute, so that a program that retries does not fill its log. A message neither ends nor delays
// the program. It is lost if no process reads standard error, or if standard error is another file
// than when the library was loaded. Threads: any.
#pragma once

#include <cstdint>

namespace tessera::limiter {

void WriteMessage(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Writes that the limit has refused `what`, such as "an allocation". `bytes` is its size; 0:
// unknown. `unaccounted` is the part of `held` that NVML reports and the limiter does not count.
void ReportRefusal(const uint8_t (&uuid)[16], const char* what, uint64_t bytes, uint64_t held,
                   uint64_t unaccounted, uint64_t limit);

}  // namespace tessera::limiter
