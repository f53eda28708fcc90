// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/memory/shared_handles.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "src/limiter/region/region_file.h"
#include "src/limiter/tables/blocks.h"

namespace tessera::limiter {
namespace {

// The range of an export begins at kFirstRange + (id * kExportsPerPiece + number) * kRangeStride
// and has one byte for each block. Each export locks a different range. Locks of one file
// description do not conflict with each other. So FindMark can distinguish the lock of a descriptor
// from the locks of other exports.
constexpr int64_t kFirstRange = int64_t(1) << 62;
constexpr int64_t kRangeStride = int64_t(1) << 22;
constexpr int64_t kExportsPerPiece = 1 << 12;
constexpr int kIdBits = 28;
static_assert((int64_t(1) << kIdBits) * kExportsPerPiece == kFirstRange / kRangeStride);
// A search ends without a result after this many marks.
constexpr int kMaxMarks = 4096;

int64_t StartOf(const PieceMark& mark) {
  return kFirstRange + int64_t(mark.id) * kExportsPerPiece * kRangeStride;
}

bool IsLocked(int fd, struct flock range) {
  return ::fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

// Opens the file again: F_OFD_GETLK reports only locks of other file descriptions (fcntl(2)).
int Reopen(int fd) {
  char path[40];
  ::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return ::open(path, O_RDWR | O_CLOEXEC);
}

// Locks the range of an export number that no open descriptor has locked. False: all numbers are
// taken, or the file cannot be locked.
bool LockExportRange(int fd, const PieceMark& mark, struct flock* range) {
  // The first number that is tried is usually free.
  static std::atomic<uint32_t> counter{0};
  const uint32_t first = uint32_t(::getpid()) * 0x9e3779b9u + counter.fetch_add(1);
  for (uint32_t i = 0; i < kExportsPerPiece; ++i) {
    const int64_t number = int64_t((first + i) % kExportsPerPiece);
    *range = ByteRange(StartOf(mark) + number * kRangeStride, int64_t(mark.bytes / kBlockBytes));
    if (::fcntl(fd, F_OFD_SETLK, range) == 0) return true;
    if (errno != EAGAIN && errno != EACCES) return false;
  }
  return false;
}

// Finds the mark of `fd` in the range from `begin` to `end`. The kernel reports any lock in a
// range, not necessarily the first. `*searches_left` is the number of locks that may still be
// examined.
bool SearchRange(int fd, int probe_fd, int64_t begin, int64_t end, int* searches_left,
                 PieceMark* mark) {
  while (begin < end && (*searches_left)-- > 0) {
    struct flock found = ByteRange(begin, end - begin);
    if (::fcntl(probe_fd, F_OFD_GETLK, &found) != 0 || found.l_type == F_UNLCK) return false;
    if (found.l_len <= 0 || found.l_start < begin) return false;
    const int64_t from = found.l_start, blocks = found.l_len;
    if (!IsLocked(fd, ByteRange(from, blocks))) {
      *mark = {uint64_t((from - kFirstRange) / kRangeStride / kExportsPerPiece),
               uint64_t(blocks) * kBlockBytes};
      return true;
    }
    if (SearchRange(fd, probe_fd, begin, from, searches_left, mark)) return true;
    begin = from + blocks;
  }
  return false;
}

}  // namespace

uint64_t NewPieceId() {
  static std::atomic<uint64_t> counter{0};
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t seed = uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
  const uint64_t mixed =
      (seed + (uint64_t(::getpid()) << 32) + counter.fetch_add(1) * 0x9e3779b9u) *
      0x9e3779b97f4a7c15u;
  return (mixed >> (64 - kIdBits)) | 1;
}

bool MarkDescriptor(int fd, const PieceMark& mark, int* probe_fd) {
  struct flock range;
  if (!LockExportRange(fd, mark, &range)) return false;
  const bool is_new = *probe_fd < 0;
  if (is_new) *probe_fd = Reopen(fd);
  if (*probe_fd < 0) return false;
  // If the path leads to another file, F_OFD_GETLK on the new descriptor does not report the lock.
  range.l_type = F_WRLCK;
  if (IsLocked(*probe_fd, range)) return true;
  if (is_new) {
    ::close(*probe_fd);
    *probe_fd = -1;
  }
  errno = 0;
  return false;
}

bool HasOpenDescriptor(int probe_fd, const PieceMark& mark) {
  return IsLocked(probe_fd, ByteRange(StartOf(mark), kExportsPerPiece * kRangeStride));
}

bool FindMark(int fd, PieceMark* mark) {
  const int probe_fd = Reopen(fd);
  if (probe_fd < 0) return false;
  int searches_left = kMaxMarks;
  const bool found = SearchRange(fd, probe_fd, kFirstRange, INT64_MAX, &searches_left, mark);
  ::close(probe_fd);
  return found;
}

}  // namespace tessera::limiter
