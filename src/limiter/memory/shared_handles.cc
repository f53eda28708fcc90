// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/memory/shared_handles.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "src/limiter/tables/blocks.h"

// Older C libraries do not declare these commands; the kernel has them since 3.15.
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

namespace tessera::limiter {
namespace {

// A range begins at kFirst + id * kStep and has one byte for each block.
constexpr int64_t kFirst = int64_t(1) << 62;
constexpr int64_t kStep = int64_t(1) << 22;
constexpr uint64_t kIds = uint64_t(1) << 40;
// A search ends without a result after this many marks.
constexpr int kMostMarks = 4096;

struct flock RangeOf(const SharedMark& mark) {
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = kFirst + int64_t(mark.id % kIds) * kStep;
  range.l_len = int64_t(mark.bytes / kBlockBytes);
  return range;
}

bool IsLocked(int fd, struct flock range) {
  return ::fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

// Opens the file again, because a descriptor does not see its own locks: F_OFD_GETLK reports only
// locks of other file descriptions (fcntl(2)).
int Reopen(int fd) {
  char path[40];
  ::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return ::open(path, O_RDWR | O_CLOEXEC);
}

// The kernel reports one lock in a range, not the first. `left` bounds the search.
bool Search(int fd, int probe_fd, int64_t begin, int64_t end, int* left, SharedMark* mark) {
  while (begin < end && (*left)-- > 0) {
    struct flock found = {};
    found.l_type = F_WRLCK;
    found.l_whence = SEEK_SET;
    found.l_start = begin;
    found.l_len = end - begin;
    if (::fcntl(probe_fd, F_OFD_GETLK, &found) != 0 || found.l_type == F_UNLCK) return false;
    if (found.l_len <= 0 || found.l_start < begin) return false;
    const int64_t from = found.l_start, bytes = found.l_len;
    found.l_type = F_WRLCK;
    if (!IsLocked(fd, found)) {
      *mark = {uint64_t(from - kFirst) / uint64_t(kStep), uint64_t(bytes) * kBlockBytes};
      return true;
    }
    if (Search(fd, probe_fd, begin, from, left, mark)) return true;
    begin = from + bytes;
  }
  return false;
}

}  // namespace

bool MarkShared(int fd, const SharedMark& mark, int* probe_fd) {
  struct flock range = RangeOf(mark);
  if (::fcntl(fd, F_OFD_SETLK, &range) != 0) return false;
  *probe_fd = Reopen(fd);
  // If the path leads to another file, the new descriptor does not see the lock.
  if (*probe_fd >= 0 && IsOpen(*probe_fd, mark)) return true;
  if (*probe_fd >= 0) ::close(*probe_fd);
  *probe_fd = -1;
  return false;
}

bool IsOpen(int probe_fd, const SharedMark& mark) { return IsLocked(probe_fd, RangeOf(mark)); }

bool FindMark(int fd, SharedMark* mark) {
  const int probe_fd = Reopen(fd);
  if (probe_fd < 0) return false;
  int left = kMostMarks;
  const bool found = Search(fd, probe_fd, kFirst, INT64_MAX, &left, mark);
  ::close(probe_fd);
  return found;
}

}  // namespace tessera::limiter
