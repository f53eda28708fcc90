// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/array/texture.h"

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kTextureAlign = 512;                     // of linear memory, device attribute 14
constexpr uint64_t kPitchAlign = 32;                        // device attribute 51
constexpr uint64_t kMaxTexels = 1 << 27;                    // of linear memory
constexpr uint64_t kMaxWidth = 131072, kMaxHeight = 65000;  // of pitched memory
constexpr unsigned kLastAddressMode = 3, kLastFilterMode = 1;

// Bytes of a texel; 0: invalid for linear memory.
unsigned TexelBytes(unsigned format, unsigned channels) {
  const bool valid = channels == 1 || channels == 2 || channels == 4;
  return valid ? ElementBytes(format, channels) : 0;
}

bool IsValidLinear(Call& call, const ResourceDescriptor& resource) {
  const auto& linear = resource.linear;
  const unsigned texel = TexelBytes(linear.format, linear.channels);
  return texel != 0 && linear.pointer % kTextureAlign == 0 && linear.bytes != 0 &&
         linear.bytes / texel <= kMaxTexels &&
         call->FindAllocation(linear.pointer, linear.bytes) != nullptr;
}

bool IsValidPitched(Call& call, const ResourceDescriptor& resource) {
  const auto& pitched = resource.pitched;
  const unsigned texel = TexelBytes(pitched.format, pitched.channels);
  if (texel == 0 || pitched.pointer % kTextureAlign != 0 || pitched.pitch % kPitchAlign != 0 ||
      pitched.width == 0 || pitched.width > kMaxWidth || pitched.height == 0 ||
      pitched.height > kMaxHeight || pitched.pitch < pitched.width * texel ||
      pitched.pitch > UINT64_MAX / (2 * kMaxHeight)) {
    return false;
  }
  const uint64_t bytes = pitched.pitch * (pitched.height - 1) + pitched.width * texel;
  return call->FindAllocation(pitched.pointer, bytes) != nullptr;
}

Result CheckResource(Call& call, const ResourceDescriptor& resource) {
  bool valid = false;
  switch (resource.type) {
    case ResourceType::kArray:
      if (!call->arrays().IsArray(resource.array)) return Result::kInvalidHandle;
      valid = true;
      break;
    case ResourceType::kMipmappedArray:
      if (!call->arrays().IsMipmap(resource.mipmap)) return Result::kInvalidHandle;
      valid = true;
      break;
    case ResourceType::kLinear:
      valid = IsValidLinear(call, resource);
      break;
    case ResourceType::kPitched:
      valid = IsValidPitched(call, resource);
      break;
  }
  return valid && resource.flags == 0 ? Result::kSuccess : Result::kInvalidValue;
}

bool HasArray(const ResourceDescriptor& resource) {
  return resource.type == ResourceType::kArray || resource.type == ResourceType::kMipmappedArray;
}

bool IsValid(const TextureDescriptor& descriptor) {
  for (unsigned mode : descriptor.address_mode) {
    if (mode > kLastAddressMode) return false;
  }
  return descriptor.filter_mode <= kLastFilterMode &&
         descriptor.mipmap_filter_mode <= kLastFilterMode;
}

template <typename Change>
Result WithObject(unsigned long long handle, bool is_surface, Change change) {
  CUDA_ENTER(ContextCall, call);
  TextureObject* object = call->textures().Find(handle, is_surface);
  return object == nullptr ? Result::kInvalidValue : change(*object);
}

Result Destroy(unsigned long long handle, bool is_surface) {
  CUDA_ENTER(ContextCall, call);
  if (call->textures().Find(handle, is_surface) == nullptr) return Result::kInvalidValue;
  call->textures().Remove(handle);
  return Result::kSuccess;
}

}  // namespace

unsigned long long Textures::Add(const TextureObject& object) {
  objects_[++last_handle_] = object;
  return last_handle_;
}

TextureObject* Textures::Find(unsigned long long handle, bool is_surface) {
  const auto found = objects_.find(handle);
  return found != objects_.end() && found->second.is_surface == is_surface ? &found->second
                                                                           : nullptr;
}

void Textures::RemoveObjectsOf(ContextTag* context) {
  std::erase_if(objects_, [context](const auto& entry) { return entry.second.context == context; });
}

CUDA_EXPORT Result cuTexObjectCreate(Texture* texture, const ResourceDescriptor* resource,
                                     const TextureDescriptor* descriptor,
                                     const ResourceViewDescriptor* view) {
  CUDA_ENTER(ContextCall, call);
  if (texture == nullptr || resource == nullptr || descriptor == nullptr) {
    return Result::kInvalidValue;
  }
  const Result result = CheckResource(call, *resource);
  if (result != Result::kSuccess) return result;
  // Only arrays have a view; the resource descriptor of linear memory has the format.
  if (!IsValid(*descriptor) || (view != nullptr && !HasArray(*resource))) {
    return Result::kInvalidValue;
  }
  TextureObject object{.context = call.context(), .resource = *resource, .descriptor = *descriptor};
  if (view != nullptr) {
    object.has_view = true;
    object.view = *view;
  }
  *texture = call->textures().Add(object);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuTexObjectDestroy(Texture texture) {
  return Destroy(texture, /*is_surface=*/false);
}

CUDA_EXPORT Result cuTexObjectGetResourceDesc(ResourceDescriptor* resource, Texture texture) {
  return WithObject(texture, /*is_surface=*/false,
                    [=](const TextureObject& object) { return Put(resource, object.resource); });
}

CUDA_EXPORT Result cuTexObjectGetTextureDesc(TextureDescriptor* descriptor, Texture texture) {
  return WithObject(texture, /*is_surface=*/false, [=](const TextureObject& object) {
    return Put(descriptor, object.descriptor);
  });
}

CUDA_EXPORT Result cuTexObjectGetResourceViewDesc(ResourceViewDescriptor* view, Texture texture) {
  return WithObject(texture, /*is_surface=*/false, [=](const TextureObject& object) {
    return object.has_view ? Put(view, object.view) : Result::kInvalidValue;
  });
}

CUDA_EXPORT Result cuSurfObjectCreate(Surface* surface, const ResourceDescriptor* resource) {
  CUDA_ENTER(ContextCall, call);
  if (surface == nullptr || resource == nullptr) return Result::kInvalidValue;
  if (resource->type != ResourceType::kArray) return Result::kInvalidValue;
  const Result result = CheckResource(call, *resource);
  if (result != Result::kSuccess) return result;
  if ((resource->array->descriptor.flags & kArraySurface) == 0) return Result::kInvalidValue;
  *surface =
      call->textures().Add({.context = call.context(), .is_surface = true, .resource = *resource});
  return Result::kSuccess;
}

CUDA_EXPORT Result cuSurfObjectDestroy(Surface surface) {
  return Destroy(surface, /*is_surface=*/true);
}

CUDA_EXPORT Result cuSurfObjectGetResourceDesc(ResourceDescriptor* resource, Surface surface) {
  return WithObject(surface, /*is_surface=*/true,
                    [=](const TextureObject& object) { return Put(resource, object.resource); });
}

}  // namespace tessera::cuda
