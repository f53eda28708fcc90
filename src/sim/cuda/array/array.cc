// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/array/array.h"

#include <algorithm>
#include <bit>

#include "src/sim/cuda/device/device_attributes.h"
#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

// NVIDIA's GPUs store textures in tiles of 64 bytes and 8 rows.
constexpr uint64_t kTileBytes = 64, kTileRows = 8;
// Above every GPU's maximum, and so small that the bytes of all mipmap levels fit in 64 bits.
constexpr uint64_t kMaxExtent = 1 << 19;
constexpr unsigned kMappedByProgram = kArraySparse | kArrayDeferredMapping;

Result Check(const Array3DDescriptor& descriptor) {
  const auto& [width, height, depth, format, channels, flags] = descriptor;
  const bool layered = (flags & kArrayLayered) != 0;
  if (channels != 1 && channels != 2 && channels != 4) return Result::kInvalidValue;
  if (width == 0 || std::max({width, height, depth}) > kMaxExtent) return Result::kInvalidValue;
  if (depth != 0 && height == 0 && !layered) return Result::kInvalidValue;
  if (depth == 0 && layered) return Result::kInvalidValue;
  if ((flags & kArrayCubemap) != 0 && (width != height || depth == 0 || depth % 6 != 0)) {
    return Result::kInvalidValue;
  }
  // Formats of images and videos are not implemented.
  return ElementBytes(descriptor.format, descriptor.channels) != 0 ? Result::kSuccess
                                                                   : Result::kNotSupported;
}

// Device memory of the array.
uint64_t LayoutBytes(const ArrayTag& array) {
  const Array3DDescriptor& descriptor = array.descriptor;
  return RoundUp(array.row_bytes(), kTileBytes) *
         RoundUp(std::max<uint64_t>(descriptor.height, 1), kTileRows) *
         std::max<uint64_t>(descriptor.depth, 1);
}

ArrayTag MakeArray(ContextTag* context, const Array3DDescriptor& descriptor) {
  ArrayTag array;
  array.context = context;
  array.descriptor = descriptor;
  array.element_bytes = ElementBytes(descriptor.format, descriptor.channels);
  return array;
}

// The descriptor of the next mipmap level.
Array3DDescriptor NextMipmapLevel(Array3DDescriptor descriptor) {
  const auto halve = [](size_t extent) { return extent > 1 ? extent / 2 : extent; };
  descriptor.width = halve(descriptor.width);
  descriptor.height = halve(descriptor.height);
  if ((descriptor.flags & kArrayLayered) == 0) descriptor.depth = halve(descriptor.depth);
  return descriptor;
}

}  // namespace

unsigned ElementBytes(unsigned format, unsigned channels) {
  switch (format) {
    case kFormatUint8:
    case kFormatInt8:
      return channels;
    case kFormatUint16:
    case kFormatInt16:
    case kFormatHalf:
      return channels * 2;
    case kFormatUint32:
    case kFormatInt32:
    case kFormatFloat:
      return channels * 4;
    default:
      return 0;
  }
}

Result Arrays::Create(Driver* driver, ContextTag* context, const Array3DDescriptor& descriptor,
                      ArrayTag** array) {
  Result result = Check(descriptor);
  if (result != Result::kSuccess) return result;
  ArrayTag created = MakeArray(context, descriptor);
  if ((descriptor.flags & kMappedByProgram) == 0) {
    result =
        driver->Allocate(context, LayoutBytes(created), MemoryKind::kArray, nullptr, &created.base);
    if (result != Result::kSuccess) return result;
  }
  *array = *arrays_.insert(new ArrayTag(created)).first;
  return Result::kSuccess;
}

Result Arrays::CreateMipmap(Driver* driver, ContextTag* context,
                            const Array3DDescriptor& descriptor, unsigned levels,
                            MipmappedArrayTag** array) {
  Result result = Check(descriptor);
  if (result != Result::kSuccess) return result;
  const bool layered = (descriptor.flags & kArrayLayered) != 0;
  const uint64_t largest =
      std::max({descriptor.width, descriptor.height, layered ? 0 : descriptor.depth});
  levels = std::clamp(levels, 1u, unsigned(std::bit_width(largest)));
  auto* created = new MipmappedArrayTag{.context = context};
  uint64_t bytes = 0;
  Array3DDescriptor of_level = descriptor;
  for (unsigned i = 0; i < levels; ++i, of_level = NextMipmapLevel(of_level)) {
    created->levels.push_back(MakeArray(context, of_level));
    created->levels.back().mipmap = created;
    bytes += LayoutBytes(created->levels.back());
  }
  if ((descriptor.flags & kMappedByProgram) == 0) {
    result = driver->Allocate(context, bytes, MemoryKind::kArray, nullptr, &created->base);
    if (result != Result::kSuccess) {
      delete created;
      return result;
    }
  }
  uint64_t at = created->base;
  for (ArrayTag& level : created->levels) {
    if (created->base != 0) level.base = at;
    at += LayoutBytes(level);
    arrays_.insert(&level);
  }
  mipmaps_.insert(created);
  *array = created;
  return Result::kSuccess;
}

void Arrays::Destroy(Driver* driver, ArrayTag* array) {
  if (array->base != 0) (void)driver->Free(array->base);
  arrays_.erase(array);
  delete array;
}

void Arrays::Destroy(Driver* driver, MipmappedArrayTag* array) {
  if (array->base != 0) (void)driver->Free(array->base);
  for (ArrayTag& level : array->levels) arrays_.erase(&level);
  mipmaps_.erase(array);
  delete array;
}

void Arrays::RemoveArraysOf(ContextTag* context) {
  std::erase_if(arrays_, [context](ArrayTag* array) {
    const bool dead = array->context == context;
    if (dead && array->mipmap == nullptr) delete array;
    return dead;
  });
  std::erase_if(mipmaps_, [context](MipmappedArrayTag* array) {
    const bool dead = array->context == context;
    if (dead) delete array;
    return dead;
  });
}

namespace {

// True: the extents are within the limits of the device's attributes. Cubemaps are not checked.
bool FitsDevice(const sim::GpuFacts& gpu, const Array3DDescriptor& descriptor) {
  const auto& [width, height, depth, format, channels, flags] = descriptor;
  const auto within = [&gpu](size_t extent, int attribute) {
    int max = 0;
    return DeviceAttribute(gpu, attribute, &max) && extent <= size_t(max);
  };
  if ((flags & kArrayCubemap) != 0) return true;
  if ((flags & kArrayLayered) != 0) {
    return height == 0 ? within(width, 42) && within(depth, 43)
                       : within(width, 27) && within(height, 28) && within(depth, 29);
  }
  if (depth != 0) return within(width, 24) && within(height, 25) && within(depth, 26);
  return height == 0 ? within(width, 21) : within(width, 22) && within(height, 23);
}

Result CreateArray(Array* array, const Array3DDescriptor& descriptor) {
  CUDA_ENTER(ContextCall, call);
  if (!FitsDevice(call->FactsOf(call.context()->device), descriptor)) return Result::kInvalidValue;
  return call->arrays().Create(&call.driver(), call.context(), descriptor, array);
}

template <typename Descriptor>
Array3DDescriptor From2D(const Descriptor& descriptor) {
  return {.width = descriptor.width,
          .height = descriptor.height,
          .format = descriptor.format,
          .channels = descriptor.channels};
}

template <typename Descriptor>
Array3DDescriptor From3D(const Descriptor& descriptor) {
  return {.width = descriptor.width,
          .height = descriptor.height,
          .depth = descriptor.depth,
          .format = descriptor.format,
          .channels = descriptor.channels,
          .flags = descriptor.flags};
}

template <typename Descriptor, typename Fill>
Result GetDescriptor(Descriptor* descriptor, Array array, Fill fill) {
  CUDA_ENTER(ContextCall, call);
  if (descriptor == nullptr) return Result::kInvalidValue;
  if (!call->arrays().IsArray(array)) return Result::kInvalidHandle;
  fill(array->descriptor);
  return Result::kSuccess;
}

template <typename Descriptor>
Result Get2DDescriptor(Descriptor* descriptor, Array array) {
  return GetDescriptor(descriptor, array, [descriptor](const Array3DDescriptor& stored) {
    using Extent = decltype(descriptor->width);
    *descriptor = {Extent(stored.width), Extent(stored.height), stored.format, stored.channels};
  });
}

template <typename Descriptor>
Result Get3DDescriptor(Descriptor* descriptor, Array array) {
  return GetDescriptor(descriptor, array, [descriptor](const Array3DDescriptor& stored) {
    using Extent = decltype(descriptor->width);
    *descriptor = {Extent(stored.width), Extent(stored.height), Extent(stored.depth),
                   stored.format,        stored.channels,       stored.flags};
  });
}

}  // namespace

CUDA_EXPORT Result cuArrayCreate_v2(Array* array, const ArrayDescriptor* descriptor) {
  if (array == nullptr || descriptor == nullptr) return Result::kInvalidValue;
  return CreateArray(array, From2D(*descriptor));
}
CUDA_EXPORT Result cuArrayCreate(Array* array, const ArrayDescriptorV1* descriptor) {
  if (array == nullptr || descriptor == nullptr) return Result::kInvalidValue;
  return CreateArray(array, From2D(*descriptor));
}
CUDA_EXPORT Result cuArray3DCreate_v2(Array* array, const Array3DDescriptor* descriptor) {
  if (array == nullptr || descriptor == nullptr) return Result::kInvalidValue;
  return CreateArray(array, *descriptor);
}
CUDA_EXPORT Result cuArray3DCreate(Array* array, const Array3DDescriptorV1* descriptor) {
  if (array == nullptr || descriptor == nullptr) return Result::kInvalidValue;
  return CreateArray(array, From3D(*descriptor));
}

CUDA_EXPORT Result cuArrayGetDescriptor_v2(ArrayDescriptor* descriptor, Array array) {
  return Get2DDescriptor(descriptor, array);
}
CUDA_EXPORT Result cuArrayGetDescriptor(ArrayDescriptorV1* descriptor, Array array) {
  return Get2DDescriptor(descriptor, array);
}
CUDA_EXPORT Result cuArray3DGetDescriptor_v2(Array3DDescriptor* descriptor, Array array) {
  return Get3DDescriptor(descriptor, array);
}
CUDA_EXPORT Result cuArray3DGetDescriptor(Array3DDescriptorV1* descriptor, Array array) {
  return Get3DDescriptor(descriptor, array);
}

// Like cuMemFree, this function and cuMipmappedArrayDestroy wait for running commands. Another
// thread may destroy the array during the wait.
CUDA_EXPORT Result cuArrayDestroy(Array array) {
  CUDA_ENTER(ContextCall, call);
  if (!call->arrays().IsArray(array) || array->mipmap != nullptr) return Result::kInvalidHandle;
  const Result waited = call.Wait(array->context);
  if (waited != Result::kSuccess) return waited;
  if (!call->arrays().IsArray(array)) return Result::kInvalidHandle;
  call->arrays().Destroy(&call.driver(), array);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMipmappedArrayCreate(MipmappedArray* array,
                                          const Array3DDescriptor* descriptor, unsigned levels) {
  CUDA_ENTER(ContextCall, call);
  if (array == nullptr || descriptor == nullptr) return Result::kInvalidValue;
  return call->arrays().CreateMipmap(&call.driver(), call.context(), *descriptor, levels, array);
}

CUDA_EXPORT Result cuMipmappedArrayGetLevel(Array* array, MipmappedArray mipmap, unsigned level) {
  CUDA_ENTER(ContextCall, call);
  if (!call->arrays().IsMipmap(mipmap)) return Result::kInvalidHandle;
  if (array == nullptr || level >= mipmap->levels.size()) return Result::kInvalidValue;
  *array = &mipmap->levels[level];
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMipmappedArrayDestroy(MipmappedArray array) {
  CUDA_ENTER(ContextCall, call);
  if (!call->arrays().IsMipmap(array)) return Result::kInvalidHandle;
  const Result waited = call.Wait(array->context);
  if (waited != Result::kSuccess) return waited;
  if (!call->arrays().IsMipmap(array)) return Result::kInvalidHandle;
  call->arrays().Destroy(&call.driver(), array);
  return Result::kSuccess;
}

}  // namespace tessera::cuda
