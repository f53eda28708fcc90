// SPDX-License-Identifier: Apache-2.0
// Reads the little of an ELF file that placing a library needs: its SONAME and for which machine it
// is. Not for loading anything. Every offset is checked against the file's size, so a damaged file
// is an error and nothing else. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"

namespace tessera::oci {

struct ElfInfo {
  std::string soname;  // empty where the library has none
  bool is_64_bit = false;
  uint16_t machine = 0;  // EM_X86_64, EM_AARCH64, ...
};

// Reads only headers, .dynamic and the name, not the whole file. INVALID_ARGUMENT: not ELF, not
// little endian, or an offset that points outside; the message says which. The offset of `fd`
// stays.
Result<ElfInfo> ReadElf(int fd);

}  // namespace tessera::oci
