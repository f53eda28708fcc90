// SPDX-License-Identifier: Apache-2.0
// The parts of a kernel image that the simulation reads: entry functions with their parameters, and
// variables with their initial values. PTX is scanned as text (image.cc), a cubin by its sections
// (cubin.cc); a fat binary is not read. Instructions are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/cuda_abi.h"

namespace tessera::cuda {

inline constexpr uint32_t kFatBinaryMagic = 0xBA55ED50;  // first four bytes

struct Parameter {
  uint32_t size = 0;
  uint32_t offset = 0;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  bool parameters_known = false;
};

// A variable of the module, in global or constant memory.
struct Global {
  std::string name;
  uint64_t size = 0;
  uint32_t align = 1;
  std::string initial;  // first bytes; zeros follow
};

struct Image {
  bool accepts_any_name = false;  // true for a fat binary, which is not read
  std::vector<Entry> entries;
  std::vector<Global> globals;
  int ptx_version = 0;  // 83 for 8.3; 0: no PTX
  int target = 0;       // 50 for sm_50

  const Entry* Find(std::string_view name) const;
};

// Size of an image for which the program gives only an address, as for cuModuleLoadData.
inline constexpr size_t kUnknownSize = SIZE_MAX;

// Reads an image of `size` bytes. It must run on compute capability `cc` (75 for 7.5) and on a
// driver of `cuda_version`, else: kInvalidPtx, kUnsupportedPtxVersion, kNoBinaryForGpu,
// kInvalidImage. REQUIRES: a NUL follows the last byte, unless the size is unknown.
Result ReadImage(const void* data, size_t size, int cc, int cuda_version, Image* image);
Result ReadPtx(std::string_view text, int cc, int cuda_version, Image* image);
// Reads no byte after the first `size` bytes.
Result ReadCubin(const char* data, size_t size, int cc, Image* image);

// Reads a file with an image. False: errno has the reason.
bool ReadWholeFile(const char* path, std::string* bytes);

// The plain name: "vectorAdd" for "_Z9vectorAddPKfS0_Pfi". Other names are returned unchanged.
std::string_view BareName(std::string_view name);

}  // namespace tessera::cuda
