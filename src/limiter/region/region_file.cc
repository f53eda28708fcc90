// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/region_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/limiter/region/blocked_signals.h"

namespace tessera::limiter {
namespace {

// If the process may not create files of this size, this fails with EFBIG and no signal is sent.
int Resize(int fd, size_t size) {
  const BlockedSignals blocked;
  return ::ftruncate(fd, off_t(size));
}

}  // namespace

int FillNewFile(int fd, const Layout& layout, mode_t mode) {
  const Header header{layout.magic, layout.version, layout.oldest_reader, layout.size};
  const bool filled = ::fchmod(fd, mode) == 0 && Resize(fd, layout.size) == 0 &&
                      ::pwrite(fd, &header, sizeof(header), 0) == ssize_t(sizeof(header));
  return filled ? 0 : errno;
}

int MapFile(int fd, const Layout& layout, bool writable, void** mapping) {
  Header header{};
  if (::pread(fd, &header, sizeof(header), 0) != ssize_t(sizeof(header))) return EPROTO;
  // lseek instead of fstat, which older C libraries do not export.
  const off_t length = ::lseek(fd, 0, SEEK_END);
  if (!CanRead(layout, header) || length < off_t(header.size)) return EPROTO;
  const bool is_short = length < off_t(layout.size);
  if (is_short && writable && Resize(fd, layout.size) != 0) return errno;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (!is_short || writable) {
    void* address = ::mmap(nullptr, layout.size, protection, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return errno;
    *mapping = address;
    return 0;
  }
  // Access to pages behind the end of a file is an error, so pages of zeros are mapped there.
  void* address = ::mmap(nullptr, layout.size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return errno;
  if (::mmap(address, size_t(length), protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(address, layout.size);
    return error;
  }
  *mapping = address;
  return 0;
}

}  // namespace tessera::limiter
