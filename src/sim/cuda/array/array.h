// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays: device memory without an address for programs. The simulation has an
// address for copies, with rows, layers and slices that follow each other without gaps. The GPU is
// charged the size of the real layout, which pads rows. texture.h has textures and surfaces.
// Threads: REQUIRES the driver's mutex.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "api/cuda_abi.h"

// ABI handles point at the following types.
struct tessera::cuda::ArrayTag {
  ContextTag* context = nullptr;
  MipmappedArrayTag* mipmap = nullptr;  // set if the array is a level
  Array3DDescriptor descriptor = {};
  unsigned element_bytes = 0;
  DevicePtr base = 0;  // 0: sparse or deferred, without memory

  uint64_t row_bytes() const { return descriptor.width * element_bytes; }
  uint64_t rows() const {
    return (descriptor.height == 0 ? 1 : descriptor.height) *
           (descriptor.depth == 0 ? 1 : descriptor.depth);
  }
  uint64_t bytes() const { return row_bytes() * rows(); }
};

struct tessera::cuda::MipmappedArrayTag {
  ContextTag* context = nullptr;
  DevicePtr base = 0;  // memory of all levels
  std::vector<ArrayTag> levels;
};

namespace tessera::cuda {

class Driver;

// Returns 0 for a format of images or videos, whose elements have no fixed size.
unsigned ElementBytes(unsigned format, unsigned channels);

class Arrays {
 public:
  bool IsArray(ArrayTag* array) const { return arrays_.contains(array); }
  bool IsMipmap(MipmappedArrayTag* array) const { return mipmaps_.contains(array); }
  Result Create(Driver* driver, ContextTag* context, const Array3DDescriptor& descriptor,
                ArrayTag** array);
  Result CreateMipmap(Driver* driver, ContextTag* context, const Array3DDescriptor& descriptor,
                      unsigned levels, MipmappedArrayTag** array);
  void Destroy(Driver* driver, ArrayTag* array);
  void Destroy(Driver* driver, MipmappedArrayTag* array);
  // Removes the arrays of a context that ends. The caller frees their memory.
  void RemoveArraysOf(ContextTag* context);

 private:
  std::unordered_set<ArrayTag*> arrays_;  // including levels of mipmapped arrays
  std::unordered_set<MipmappedArrayTag*> mipmaps_;
};

}  // namespace tessera::cuda
