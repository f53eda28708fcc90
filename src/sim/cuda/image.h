// SPDX-License-Identifier: Apache-2.0
// What the simulation reads of a kernel image: which entry functions it has and what they take, and
// which variables it has and what they begin with. PTX is scanned as text (image.cc), a cubin by
// its sections (cubin.cc); a fat binary is taken as it is. Not a compiler: no instruction is looked
// at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/cuda_abi.h"

namespace tessera::cuda {

inline constexpr uint32_t kFatBinaryMagic = 0xBA55ED50;  // its first four bytes

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
  std::string initial;  // its first bytes; zeros follow
};

struct Image {
  bool any_name = false;  // a fat binary: each name that is asked for exists
  std::vector<Entry> entries;
  std::vector<Global> globals;
  int ptx_version = 0;  // 83 for 8.3; 0: no PTX
  int target = 0;       // 50 for sm_50

  const Entry* Find(std::string_view name) const;
};

// Reads an image as given to cuModuleLoadData. `cc` (75 for 7.5) and `cuda_version` of the driver
// decide what it can run: kInvalidPtx, kUnsupportedPtxVersion, kNoBinaryForGpu, kInvalidImage.
Result ReadImage(const void* data, int cc, int cuda_version, Image* image);
Result ReadPtx(std::string_view text, int cc, int cuda_version, Image* image);
Result ReadCubin(const char* data, int cc, Image* image);

// The contents of a file with an image; false with errno.
bool ReadWholeFile(const char* path, std::string* bytes);

// "vectorAdd" of "_Z9vectorAddPKfS0_Pfi"; other names are themselves.
std::string_view BareName(std::string_view name);

}  // namespace tessera::cuda
