// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/stream/shared_event.h"

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "src/sim/futex.h"

namespace tessera::cuda {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr uint64_t kMaxRecordSleepNs = 10'000'000;  // maximum delay to notice a dead process

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::Create() {
  const int fd = int(syscall(SYS_memfd_create, "simgpu-event", MFD_CLOEXEC));
  if (fd < 0) return nullptr;
  if (ftruncate(fd, kPageBytes) == 0) return Open(fd);
  close(fd);
  return nullptr;
}

std::shared_ptr<SharedEvent> SharedEvent::Open(int fd) {
  struct stat info;
  if (fstat(fd, &info) == 0 && info.st_size == off_t(kPageBytes)) {
    void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) {
      return std::shared_ptr<SharedEvent>(
          new SharedEvent(fd, info.st_ino, static_cast<Page*>(page)));
    }
  }
  close(fd);
  return nullptr;
}

SharedEvent::~SharedEvent() {
  munmap(page_, kPageBytes);
  close(fd_);
}

uint64_t SharedEvent::Record(uint32_t slot) {
  page_->slot.store(slot);
  return page_->recorded.fetch_add(1) + 1;
}

void SharedEvent::Finish(uint64_t record) {
  uint64_t done = page_->done.load();
  while (done < record && !page_->done.compare_exchange_weak(done, record)) {
  }
  page_->signal.fetch_add(1);
  sim::FutexWakeAll(&page_->signal);
}

bool SharedEvent::IsDone(uint64_t record, sim::State& state) const {
  return page_->done.load() >= record || state.HolderOf(page_->slot.load()) < 0;
}

void SharedEvent::Sleep(uint64_t record) {
  const uint32_t seen = page_->signal.load();
  if (page_->done.load() < record) sim::FutexWait(&page_->signal, seen, kMaxRecordSleepNs);
}

}  // namespace tessera::cuda
