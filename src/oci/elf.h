// SPDX-License-Identifier: Apache-2.0
// Reads the parts of an ELF file that are needed to place a library. Does not load it. Checks each
// offset against the file's size, so that a damaged file only causes an error. Any thread.
#pragma once

#include <string>

#include "src/base/status.h"

namespace tessera::oci {

struct ElfInfo {
  std::string soname;  // empty if the library has none
  bool is_64_bit = false;
};

// Reads only headers, .dynamic and the name. INVALID_ARGUMENT, with the reason: not ELF, not little
// endian, or an offset outside of the file. Keeps the offset of `fd`.
Result<ElfInfo> ReadElf(int fd);

}  // namespace tessera::oci
