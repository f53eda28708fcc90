// SPDX-License-Identifier: Apache-2.0
// For tests: writes `usage` like the processes of a container. Each process is a descriptor that
// holds the lock of its slot.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>

#include "src/base/file.h"
#include "src/limiter/region.h"
#include "src/limiter/region/region_file.h"

namespace tessera::agent {

class UsageTestFile {
 public:
  explicit UsageTestFile(const std::string& path) : path_(path) {
    fd_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (::ftruncate(fd_.get(), sizeof(limiter::Usage)) != 0) return;
    usage_ = static_cast<limiter::Usage*>(
        ::mmap(nullptr, sizeof(limiter::Usage), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    usage_->header = {limiter::kUsageMagic, limiter::kVersion, limiter::kOldestReader,
                      sizeof(limiter::Usage)};
  }
  ~UsageTestFile() { ::munmap(usage_, sizeof(limiter::Usage)); }
  UsageTestFile(const UsageTestFile&) = delete;
  UsageTestFile& operator=(const UsageTestFile&) = delete;

  void Hold(uint32_t slot, uint64_t bytes, int gpu = 0) {
    if (!owners_.contains(slot)) Lock(slot);
    usage_->pids[slot] = static_cast<int32_t>(slot) + 1;
    if (usage_->slots_end <= slot) usage_->slots_end = slot + 1;
    usage_->gpus[gpu].held[slot] = bytes;
  }
  void Refuse(uint64_t bytes, int gpu = 0) {
    ++usage_->gpus[gpu].refused;
    usage_->gpus[gpu].refused_bytes = bytes;
  }
  // Ends the process. Its numbers stay until another process clears them.
  void End(uint32_t slot) { owners_.erase(slot); }

  int fd() const { return fd_.get(); }
  limiter::Usage& usage() { return *usage_; }

 private:
  void Lock(uint32_t slot) {
    Fd owner(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    struct flock lock = limiter::ByteRange(slot);
    (void)::fcntl(owner.get(), F_OFD_SETLK, &lock);
    owners_[slot] = std::move(owner);
  }

  const std::string path_;
  Fd fd_;
  limiter::Usage* usage_ = nullptr;
  std::map<uint32_t, Fd> owners_;
};

}  // namespace tessera::agent
