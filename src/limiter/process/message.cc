// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/process/message.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "src/limiter/region/blocked_signals.h"

namespace tessera::limiter {
namespace {

// A minute begins with its first line.
constexpr int kMaxLinesPerMinute = 10;
std::atomic<int64_t> minute_start{INT64_MIN / 2};  // seconds
std::atomic<int> lines_written{0};

bool MayWrite() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t start = minute_start.load();
  if (now.tv_sec - start >= 60 && minute_start.compare_exchange_strong(start, now.tv_sec)) {
    lines_written.store(0);
  }
  return lines_written.fetch_add(1) < kMaxLinesPerMinute;
}

// Makes the system call itself: older C libraries do not export fstat.
bool Stat(int fd, struct stat* status) { return ::syscall(SYS_fstat, fd, status) == 0; }

// The program may have closed its standard error, and the descriptor may now belong to a file or
// connection of the program.
struct stat status_at_load;
bool was_open_at_load = false;
__attribute__((constructor)) void RememberStandardError() {
  was_open_at_load = Stat(STDERR_FILENO, &status_at_load);
}

bool IsSameFileAsAtLoad(const struct stat& now) {
  return was_open_at_load && now.st_dev == status_at_load.st_dev &&
         now.st_ino == status_at_load.st_ino;
}

// Other processes may share the file description, so it must not become non-blocking. This function
// opens a new, non-blocking description of the same pipe or terminal. The open fails without a free
// descriptor, without /proc, or if the pipe belongs to another user.
void WriteWithoutBlocking(const char* text, size_t length) {
  const int fd = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) {
    (void)!::write(fd, text, length);
    ::close(fd);
    return;
  }
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT) {
    (void)!::write(STDERR_FILENO, text, length);
  }
}

// Loses the message if writing it would end or delay the program.
void WriteToStandardError(const char* text, size_t length) {
  struct stat status;
  if (!Stat(STDERR_FILENO, &status) || !IsSameFileAsAtLoad(status)) return;
  const BlockedSignals blocked;
  if (S_ISSOCK(status.st_mode)) {
    (void)::send(STDERR_FILENO, text, length, MSG_DONTWAIT | MSG_NOSIGNAL);
  } else if (S_ISREG(status.st_mode)) {
    (void)!::write(STDERR_FILENO, text, length);
  } else {
    WriteWithoutBlocking(text, length);
  }
}

double MiB(uint64_t bytes) { return double(bytes) / (1 << 20); }

}  // namespace

void WriteMessage(const char* format, ...) {
  if (!MayWrite()) return;
  char text[512] = "tessera: ";
  constexpr int kPrefixLength = 9;
  va_list arguments;
  va_start(arguments, format);
  int length =
      ::vsnprintf(text + kPrefixLength, sizeof(text) - kPrefixLength - 1, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  length += kPrefixLength;
  if (length > int(sizeof(text)) - 2) length = int(sizeof(text)) - 2;
  text[length++] = '\n';
  WriteToStandardError(text, size_t(length));
}

void ReportRefusal(const uint8_t (&uuid)[16], const char* what, uint64_t bytes, uint64_t held,
                   uint64_t unaccounted, uint64_t limit) {
  char unaccounted_text[96] = "", size_text[32] = "";
  if (unaccounted != 0) {
    ::snprintf(unaccounted_text, sizeof(unaccounted_text),
               " (%.0f MiB of it for modules, contexts and other memory of the driver)",
               MiB(unaccounted));
  }
  if (bytes != 0) ::snprintf(size_text, sizeof(size_text), " of %.1f MiB", MiB(bytes));
  WriteMessage(
      "CUDA out of memory: this container may use %.0f MiB of GPU-%02x%02x%02x%02x-... and holds "
      "%.0f MiB%s; %s%s is refused: raise the pod's request of device memory, or allocate less",
      MiB(limit), uuid[0], uuid[1], uuid[2], uuid[3], MiB(held), unaccounted_text, what, size_text);
}

}  // namespace tessera::limiter
