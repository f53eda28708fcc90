// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>

#include "src/limiter/region/region_file.h"
#include "src/limiter/region/shared_pieces.h"

namespace tessera::limiter {
namespace {

// Number of temporary names to try. Processes that start at the same time use different names.
constexpr int kMaxNames = 1000;

class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int Map(const ScopedFd& file, const Layout& layout, bool writable, void** mapping) {
  return file.get() < 0 ? errno : MapFile(file.get(), layout, writable, mapping);
}

// `type` is F_WRLCK or F_UNLCK.
bool SetLock(const ScopedFd& file, uint32_t slot, short type) {
  struct flock lock = ByteRange(slot, 1, type);
  return ::fcntl(file.get(), F_OFD_SETLK, &lock) == 0;
}
bool LockSlot(const ScopedFd& file, uint32_t slot) { return SetLock(file, slot, F_WRLCK); }
void UnlockSlot(const ScopedFd& file, uint32_t slot) { (void)SetLock(file, slot, F_UNLCK); }

// The lower bits of Usage::starts hold the start of the process, the upper bits its stack.
constexpr int kStartBits = 40;
constexpr uint64_t kStartMask = (uint64_t(1) << kStartBits) - 1;

const char* SkipFields(const char* field, int count) {
  for (; count > 0 && field != nullptr; --count) {
    field = ::strchr(field + 1, ' ');
    if (field != nullptr) ++field;
  }
  return field;
}

// Reads the state and the start of a process from /proc/PID/stat. `*start` has the format of
// Usage::starts. Returns 0 or an errno; ESRCH: no such process.
int ReadStat(const char* pid, char* state, uint64_t* start) {
  char path[64];
  ::snprintf(path, sizeof(path), "/proc/%s/stat", pid);
  const ScopedFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return errno == ENOENT ? ESRCH : errno;
  char text[1024];
  const ssize_t length = ::read(file.get(), text, sizeof(text) - 1);
  if (length <= 0) return ESRCH;  // the process has ended since
  text[length] = 0;
  // The program's name is in parentheses and may hold any character; field 3 follows the last ')'.
  const char* field = ::strrchr(text, ')');
  if (field == nullptr || field[1] == 0) return ESRCH;
  field += 2;
  *state = *field;
  field = SkipFields(field, 22 - 3);
  *start = field != nullptr ? ::strtoull(field, nullptr, 10) & kStartMask : 0;
  field = SkipFields(field, 28 - 22);
  // Stacks are aligned to 16 bytes, so the lowest bits carry nothing.
  const uint64_t stack = field != nullptr ? ::strtoull(field, nullptr, 10) : 0;
  *start |= stack >> 4 << kStartBits;
  return 0;
}

bool IsGone(int32_t pid, uint64_t start) {
  char text[16];
  ::snprintf(text, sizeof(text), "%d", pid);
  char state = 0;
  uint64_t found_start = 0;
  // Another error, such as a lack of descriptors, is temporary; a later sweep repeats the check.
  if (const int error = ReadStat(text, &state, &found_start); error != 0) return error == ESRCH;
  // A process in state Z or X has closed its files. A different start means a different process.
  if (state == 'Z' || state == 'X' || (start != 0 && ((found_start ^ start) & kStartMask) != 0))
    return true;
  // A different stack means that the process has called exec, which closed the files before the
  // kernel set up the new stack.
  const uint64_t stack = found_start >> kStartBits, old_stack = start >> kStartBits;
  return stack != 0 && old_stack != 0 && stack != old_stack;
}

bool IsEmpty(const Usage& usage, uint32_t slot) {
  if (usage.pids[slot].load() != 0 || usage.compute_gpus[slot].load() != 0) return false;
  for (const GpuUsage& gpu : usage.gpus) {
    if (gpu.held[slot].load() != 0 || gpu.pending[slot].load() != 0) return false;
  }
  return true;
}

// Clears only lines that were written: a write to any other page would take memory of the
// container's tmpfs.
void ClearCompute(Usage* usage, uint32_t slot) {
  const uint32_t gpu_bits = usage->compute_gpus[slot].load();
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if ((gpu_bits >> gpu & 1) == 0) continue;
    ComputeSlot& line = usage->compute[gpu].slots[slot];
    for (auto* field : {&line.metered, &line.in_flight, &line.last_launch, &line.last_long_work,
                        &line.last_wait, &line.last_written, &line.longest, &line.last_limited}) {
      field->store(0);
    }
  }
  usage->compute_gpus[slot].store(0);
}

void ClearSlot(Usage* usage, uint32_t slot) {
  LeaveAllPieces(usage, slot);
  for (GpuUsage& gpu : usage->gpus) {
    gpu.held[slot].store(0);
    gpu.pending[slot].store(0);
  }
  ClearCompute(usage, slot);
  usage->starts[slot].store(0);
  usage->pids[slot].store(0);
}

void RaiseSlotsEnd(Usage* usage, uint32_t count) {
  uint32_t seen = usage->slots_end.load();
  while (seen < count && !usage->slots_end.compare_exchange_weak(seen, count)) {
  }
}

}  // namespace

int MapLimits(const char* path, const Limits** limits) {
  const ScopedFd file(::open(path, O_RDONLY | O_CLOEXEC));
  void* mapping = nullptr;
  const int error = Map(file, kLimitsLayout, /*writable=*/false, &mapping);
  if (error == 0) *limits = static_cast<const Limits*>(mapping);
  return error;
}

int MapUsage(const char* path, Usage** usage) {
  const ScopedFd file(::open(path, O_RDWR | O_CLOEXEC));
  void* mapping = nullptr;
  const int error = Map(file, kUsageLayout, /*writable=*/true, &mapping);
  if (error == 0) *usage = static_cast<Usage*>(mapping);
  return error;
}

int ClaimSlot(const char* path, Usage** usage, uint32_t* slot) {
  const ScopedFd file(::open(path, O_RDWR | O_CLOEXEC));
  void* mapping = nullptr;
  if (const int error = Map(file, kUsageLayout, /*writable=*/true, &mapping); error != 0) {
    return error;
  }
  auto* region = static_cast<Usage*>(mapping);
  // Without MADV_DONTFORK, a child that never uses a GPU would keep the lock, and so the charges of
  // its parent.
  ::madvise(mapping, sizeof(Usage), MADV_DONTFORK);
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    if (!LockSlot(file, i)) continue;
    // The owner no longer holds the lock, but may not have closed its files yet.
    if (const int32_t pid = region->pids[i].load();
        pid != 0 && !IsGone(pid, region->starts[i].load())) {
      UnlockSlot(file, i);
      continue;
    }
    ClearSlot(region, i);
    char state = 0;
    uint64_t start = 0;
    (void)ReadStat("self", &state, &start);
    region->starts[i].store(start);
    region->pids[i].store(::getpid());
    RaiseSlotsEnd(region, i + 1);
    *usage = region;
    *slot = i;
    return 0;
  }
  ::munmap(mapping, sizeof(Usage));
  return EAGAIN;
}

int MakeUsage(const char* path) {
  if (::access(path, F_OK) == 0) return 0;
  // The temporary name is unique: another process, even of another pid namespace, may do the same.
  char temporary[4200];
  int fd = -1;
  for (int i = 0; i < kMaxNames && fd < 0; ++i) {
    ::snprintf(temporary, sizeof(temporary), "%s.%d", path, i);
    fd = ::open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) return errno;
  }
  const ScopedFd file(fd);
  if (fd < 0) return EEXIST;
  // Processes of all users of the container write the file.
  int error = FillNewFile(fd, kUsageLayout, 0666);
  if (error == 0 && ::link(temporary, path) != 0 && errno != EEXIST) error = errno;
  ::unlink(temporary);
  return error;
}

int SweepSlots(const char* path, Usage* usage) {
  // Opens a new file description: locks conflict with it even if this process itself holds them.
  const ScopedFd file(::open(path, O_RDWR | O_CLOEXEC));
  if (file.get() < 0) return -1;
  uint32_t slots = usage->slots_end.load();
  if (slots > kMaxSlots) slots = kMaxSlots;
  int cleared = 0;
  for (uint32_t i = 0; i < slots; ++i) {
    if (IsEmpty(*usage, i) || !LockSlot(file, i)) continue;
    const int32_t pid = usage->pids[i].load();
    if (pid == 0 || IsGone(pid, usage->starts[i].load())) {
      ClearSlot(usage, i);
      ++cleared;
    }
    UnlockSlot(file, i);
  }
  return cleared;
}

}  // namespace tessera::limiter
