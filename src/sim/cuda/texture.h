// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects: handles that kernels read arrays and linear memory by. A kernel of
// the simulation reads none of them, so an object is what the program said of it. It takes no
// memory of the GPU, and its array or memory may end before it, as with the real driver. Threads:
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
  // Null: there is no texture, or no surface, of that handle.
  TextureObject* Find(unsigned long long handle, bool is_surface);
  void Remove(unsigned long long handle) { objects_.erase(handle); }
  // The context ends.
  void Forget(ContextTag* context);

 private:
  std::map<unsigned long long, TextureObject> objects_;
  unsigned long long last_ = 0;
};

}  // namespace tessera::cuda
