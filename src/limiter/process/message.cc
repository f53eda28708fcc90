// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/process/message.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace tessera::limiter {
namespace {

// Maximum number of lines in a minute. A minute begins with its first line.
constexpr int kPerMinute = 10;
std::atomic<int64_t> minute_start{INT64_MIN / 2};  // seconds
std::atomic<int> written{0};

bool MayWrite() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t start = minute_start.load();
  if (now.tv_sec - start >= 60 && minute_start.compare_exchange_strong(start, now.tv_sec)) {
    written.store(0);
  }
  return written.fetch_add(1) < kPerMinute;
}

double MiB(uint64_t bytes) { return double(bytes) / (1 << 20); }

}  // namespace

void WriteMessage(const char* format, ...) {
  if (!MayWrite()) return;
  char text[512] = "tessera: ";
  constexpr int kPrefix = 9;
  va_list arguments;
  va_start(arguments, format);
  int length = ::vsnprintf(text + kPrefix, sizeof(text) - kPrefix - 1, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  length += kPrefix;
  if (length > int(sizeof(text)) - 2) length = int(sizeof(text)) - 2;
  text[length++] = '\n';
  // A program that has closed its standard error gets no message.
  if (::write(STDERR_FILENO, text, size_t(length)) < 0) return;
}

void ReportRefusal(const uint8_t (&uuid)[16], uint64_t bytes, uint64_t held, uint64_t unaccounted,
                   uint64_t limit) {
  char part[96] = "";
  if (unaccounted != 0) {
    ::snprintf(part, sizeof(part), " (%.0f MiB of it as modules, contexts and the like)",
               MiB(unaccounted));
  }
  WriteMessage(
      "CUDA out of memory: this container may use %.0f MiB of GPU-%02x%02x%02x%02x-... and holds "
      "%.0f MiB%s; "
      "an allocation of %.1f MiB is refused: raise the pod's request of device memory, or allocate "
      "less",
      MiB(limit), uuid[0], uuid[1], uuid[2], uuid[3], MiB(held), part, MiB(bytes));
}

}  // namespace tessera::limiter
