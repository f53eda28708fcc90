// SPDX-License-Identifier: Apache-2.0
// Messages on standard error for the user of the program: "tessera: ...". At most ten lines a
// minute, so that a program that retries does not fill its log. A line neither ends nor delays the
// program: it is lost if no process reads standard error, or if the descriptor is another file than
// when the library was loaded. Threads: any.
#pragma once

#include <cstdint>

namespace tessera::limiter {

void WriteMessage(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Writes that the limit has refused `what`, such as "an allocation", of `bytes`; 0: of unknown
// size. `unaccounted` is the part of `held` that the driver reports and no limiter counts.
void ReportRefusal(const uint8_t (&uuid)[16], const char* what, uint64_t bytes, uint64_t held,
                   uint64_t unaccounted, uint64_t limit);

}  // namespace tessera::limiter
