// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/guarded_mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "src/base/status.h"

namespace tessera::agent {
namespace {

// The mapping that the thread is reading. Constant-initialized, so that the signal handler may use
// it.
struct GuardedAccess {
  char *begin = nullptr, *end = nullptr;
  volatile sig_atomic_t failed = 0;
};
thread_local GuardedAccess t_access;

struct sigaction previous_action;
const auto kPageSize = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));

bool PutZeros(char* address) {
  const uintptr_t page = reinterpret_cast<uintptr_t>(address) / kPageSize * kPageSize;
  return ::mmap(reinterpret_cast<void*>(page), kPageSize, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

// The kernel delivers SIGBUS to the reading thread. After the handler has mapped zeros, the thread
// repeats the access.
void OnSigbus(int, siginfo_t* info, void*) {
  const int error = errno;
  auto* const address = static_cast<char*>(info->si_addr);
  if (address >= t_access.begin && address < t_access.end && PutZeros(address)) {
    t_access.failed = 1;
  } else {
    // The access is repeated after the return, and its signal then goes to the earlier handler.
    ::sigaction(SIGBUS, &previous_action, nullptr);
  }
  errno = error;
}

void InstallHandler() {
  static const bool is_installed = [] {
    struct sigaction action {};
    action.sa_sigaction = OnSigbus;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    return ::sigaction(SIGBUS, &action, &previous_action) == 0;
  }();
  TESSERA_CHECK(is_installed);
}

}  // namespace

GuardedMapping::GuardedMapping(int fd, off_t offset, size_t size) {
  InstallHandler();
  const auto page_offset = static_cast<size_t>(offset) % kPageSize;
  length_ = page_offset + size;
  void* mapped =
      ::mmap(nullptr, length_, PROT_READ, MAP_SHARED, fd, offset - static_cast<off_t>(page_offset));
  if (mapped == MAP_FAILED) return;
  start_ = static_cast<char*>(mapped);
  data_ = start_ + page_offset;
}

GuardedMapping::~GuardedMapping() { Unmap(); }

void GuardedMapping::Unmap() {
  if (start_ != nullptr) ::munmap(start_, length_);
  start_ = nullptr;
  data_ = nullptr;
}

void GuardedMapping::Begin() const {
  t_access.begin = start_;
  t_access.end = start_ + length_;
  t_access.failed = 0;
}

bool GuardedMapping::End() {
  t_access.begin = t_access.end = nullptr;
  if (t_access.failed == 0) return true;
  Unmap();
  return false;
}

}  // namespace tessera::agent
