// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/limits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera::limiter {
namespace {

// A crash leaves at most a temporary file, which the next call overwrites.
int MakeFile(const char* path) {
  char temporary[4200];
  ::snprintf(temporary, sizeof(temporary), "%s.new", path);
  const int fd = ::open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return errno;
  const Header header{kLimitsMagic, kVersion, sizeof(Limits)};
  int error = 0;
  // Every user of the container reads it, whatever umask the agent has.
  if (::fchmod(fd, 0644) != 0 || ::ftruncate(fd, sizeof(Limits)) != 0 ||
      ::pwrite(fd, &header, sizeof(header), 0) != ssize_t(sizeof(header)) ||
      ::rename(temporary, path) != 0) {
    error = errno;
  }
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
  struct stat info;
  int error = ::fstat(fd, &info) != 0 ? errno : info.st_size < off_t(sizeof(Limits)) ? EPROTO : 0;
  void* mapped = MAP_FAILED;
  if (error == 0) {
    mapped = ::mmap(nullptr, sizeof(Limits), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error != 0) return error;
  auto* limits = static_cast<Limits*>(mapped);
  if (limits->header.magic != kLimitsMagic || limits->header.version != kVersion) {
    ::munmap(mapped, sizeof(Limits));
    return EPROTO;
  }
  limits_ = limits;
  return 0;
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
