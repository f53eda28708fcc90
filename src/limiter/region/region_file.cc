// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/region_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/limiter/region.h"

namespace tessera::limiter {

int FillNewFile(int fd, size_t size, uint32_t magic, mode_t mode) {
  const Header header{magic, kVersion, size};
  const bool filled = ::fchmod(fd, mode) == 0 && ::ftruncate(fd, off_t(size)) == 0 &&
                      ::pwrite(fd, &header, sizeof(header), 0) == ssize_t(sizeof(header));
  return filled ? 0 : errno;
}

int MapFile(int fd, size_t size, uint32_t magic, bool writable, void** mapped) {
  // lseek instead of fstat, which older C libraries do not export.
  if (::lseek(fd, 0, SEEK_END) < off_t(size)) return EPROTO;
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return errno;
  const auto* header = static_cast<const Header*>(address);
  if (header->magic != magic || header->version != kVersion || header->size < size) {
    ::munmap(address, size);
    return EPROTO;
  }
  *mapped = address;
  return 0;
}

}  // namespace tessera::limiter
