// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects, by which kernels read arrays and linear memory. Kernels of the
// simulation do not read them, so an object only stores its descriptors. It takes no device memory.
// As with the real driver, the program may free the array or memory before the object. Threads:
// REQUIRES the driver's mutex.
#pragma once

#include <map>

#include "api/cuda_abi.h"

namespace tessera::cuda {

class Driver;

struct TextureObject {
  ContextTag* context = nullptr;
  bool is_surface = false;
  ResourceDescriptor resource = {};
  TextureDescriptor descriptor = {};
  bool has_view = false;
  ResourceViewDescriptor view = {};
};

class Textures {
 public:
  unsigned long long Add(const TextureObject& object);
  // Null: the handle is invalid, or is not a surface (`is_surface`) or texture as requested.
  TextureObject* Find(unsigned long long handle, bool is_surface);
  void Remove(unsigned long long handle) { objects_.erase(handle); }
  // Removes the objects of a context that ends.
  void RemoveObjectsOf(ContextTag* context);

 private:
  std::map<unsigned long long, TextureObject> objects_;
  unsigned long long last_handle_ = 0;
};

}  // namespace tessera::cuda
