// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/limits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/limiter/region_file.h"

namespace tessera::limiter {
namespace {

// A crash leaves at most a temporary file, which the next call overwrites.
int MakeFile(const char* path) {
  char temporary[4200];
  ::snprintf(temporary, sizeof(temporary), "%s.new", path);
  const int fd = ::open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return errno;
  // Every user of the container reads it.
  int error = FillNewFile(fd, sizeof(Limits), kLimitsMagic, 0644);
  if (error == 0 && ::rename(temporary, path) != 0) error = errno;
  ::close(fd);
  return error;
}

// The 16 bytes after "GPU-" or "MIG-", with dashes anywhere.
bool ParseUuid(const char* text, uint8_t (&uuid)[16]) {
  if (::strncmp(text, "GPU-", 4) == 0 || ::strncmp(text, "MIG-", 4) == 0) text += 4;
  constexpr char kHex[] = "0123456789abcdef";
  size_t digits = 0;
  for (; *text != 0 && digits < 32; ++text) {
    if (*text == '-') continue;
    const char* digit = ::strchr(kHex, *text | 0x20);
    if (digit == nullptr) return false;
    uint8_t& byte = uuid[digits++ / 2];
    byte = uint8_t(byte << 4 | (digit - kHex));
  }
  return digits == 32 && *text == 0;
}

}  // namespace

LimitsFile::~LimitsFile() {
  if (limits_ != nullptr) ::munmap(limits_, sizeof(Limits));
}

int LimitsFile::Open(const char* path) {
  if (::access(path, F_OK) != 0) {
    if (const int error = MakeFile(path); error != 0) return error;
  }
  const int fd = ::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno;
  void* mapped = nullptr;
  const int error = MapFile(fd, sizeof(Limits), kLimitsMagic, /*writable=*/true, &mapped);
  ::close(fd);
  if (error == 0) limits_ = static_cast<Limits*>(mapped);
  return error;
}

int LimitsFile::SetMemory(const char* text, uint64_t bytes) {
  uint8_t uuid[16] = {};
  if (!ParseUuid(text, uuid)) return EINVAL;
  uint32_t i = 0;
  while (i < limits_->gpu_count && ::memcmp(limits_->gpus[i].uuid, uuid, sizeof(uuid)) != 0) ++i;
  if (i == kMaxGpus) return ENOSPC;
  ::memcpy(limits_->gpus[i].uuid, uuid, sizeof(uuid));
  limits_->gpus[i].memory.store(bytes);
  // A reader sees a GPU only when it is whole.
  if (i == limits_->gpu_count) __atomic_store_n(&limits_->gpu_count, i + 1, __ATOMIC_RELEASE);
  return 0;
}

}  // namespace tessera::limiter
