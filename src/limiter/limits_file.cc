// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/limits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/limiter/region/region_file.h"
#include "src/limiter/region/uuid.h"

namespace tessera::limiter {
namespace {

// A crash leaves at most a temporary file, which the next call overwrites.
int MakeFile(const char* path) {
  char temporary[4200];
  ::snprintf(temporary, sizeof(temporary), "%s.new", path);
  const int fd = ::open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return errno;
  // Every user of the container reads the file.
  int error = FillNewFile(fd, kLimitsLayout, 0644);
  if (error == 0 && ::rename(temporary, path) != 0) error = errno;
  ::close(fd);
  return error;
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
  void* mapping = nullptr;
  const int error = MapFile(fd, kLimitsLayout, /*writable=*/true, &mapping);
  ::close(fd);
  if (error == 0) limits_ = static_cast<Limits*>(mapping);
  return error;
}

int LimitsFile::FindOrAdd(const char* uuid, uint32_t* index) {
  uint8_t bytes[16] = {};
  if (!ParseUuid(uuid, bytes)) return EINVAL;
  const int found = FindGpu(*limits_, bytes);
  const uint32_t i = found >= 0 ? uint32_t(found) : limits_->gpu_count;
  if (i >= kMaxGpus) return ENOSPC;
  ::memcpy(limits_->gpus[i].uuid, bytes, sizeof(bytes));
  if (found < 0) SetReportedRefusals(i, 0);  // the container has not used the GPU yet
  *index = i;
  return 0;
}

// A reader finds a GPU only after all of its fields are written.
void LimitsFile::PublishGpu(uint32_t index) {
  if (index == limits_->gpu_count)
    __atomic_store_n(&limits_->gpu_count, index + 1, __ATOMIC_RELEASE);
}

void LimitsFile::SetFailOpen(bool fail_open) { limits_->flags.store(fail_open ? kFailOpen : 0); }

int LimitsFile::SetMemory(const char* uuid, uint64_t bytes) {
  uint32_t i = 0;
  if (const int error = FindOrAdd(uuid, &i); error != 0) return error;
  limits_->gpus[i].memory.store(bytes);
  PublishGpu(i);
  return 0;
}

int LimitsFile::SetUnaccounted(const char* uuid, uint64_t bytes) {
  const int found = Find(uuid);
  if (found < 0) return ENOENT;
  limits_->gpus[found].unaccounted.store(bytes);
  return 0;
}

void LimitsFile::SetReportedRefusals(uint32_t gpu, uint64_t refused) {
  limits_->gpus[gpu].reported_refusals.store(refused + 1);
}

int LimitsFile::Find(const char* uuid) const {
  uint8_t bytes[16] = {};
  return ParseUuid(uuid, bytes) ? FindGpu(*limits_, bytes) : -1;
}

int LimitsFile::SetCompute(const char* uuid, double cap, double floor) {
  uint32_t i = 0;
  if (const int error = FindOrAdd(uuid, &i); error != 0) return error;
  ComputeLimit& limit = limits_->compute[i];
  limit.cap.store(uint32_t(cap * kOne));
  limit.floor.store(uint32_t(floor * kOne));
  limit.epoch.store(cap > 0 || floor > 0 ? limit.epoch.load() + 1 : 0, std::memory_order_release);
  PublishGpu(i);
  return 0;
}

void LimitsFile::Write(uint32_t gpu, const Arbiter::Allowance& allowance) {
  WriteAllowance(allowance, &limits_->compute[gpu]);
}

void LimitsFile::Write(uint32_t gpu, const Arbiter::ProcessPart& part) {
  if (part.slot < kMaxSlots) WritePart(part, &limits_->parts[gpu][part.slot]);
}

}  // namespace tessera::limiter
