// SPDX-License-Identifier: Apache-2.0
// The driver's functions that create and destroy arrays and mipmapped arrays.
#include "src/limiter/loader/driver.h"
#include "src/limiter/memory/array_size.h"
#include "src/limiter/process/process.h"
#include "src/limiter/tables/blocks.h"

namespace tessera::cuda {
namespace {

using limiter::ArrayBytes;
using limiter::Contexts;
using limiter::driver;
using limiter::MipmapBytes;
using limiter::Process;
using limiter::RoundToBlocks;

// Reserves a whole block even for a small array, which may be the first in its block.
template <typename Handle, typename Create, typename Destroy>
Result CreateArray(Handle* array, uint64_t bytes, Create create, Destroy destroy) {
  Process& process = Process::Get();
  const Contexts::Info context = process.CurrentContext();
  if (context.gpu < 0 || array == nullptr || bytes == 0) return create();
  const uint64_t reserved = RoundToBlocks(bytes);
  if (!process.Reserve(context.gpu, reserved)) return Result::kOutOfMemory;
  Result result = create();
  if (result == Result::kSuccess &&
      !process.charges().Add(*array, context, bytes, &process.memory_budget())) {
    destroy(*array);
    *array = nullptr;
    result = Result::kOutOfMemory;
  }
  process.memory_budget().Cancel(context.gpu, reserved);
  return result;
}

// Functions with and without _v2 have descriptors with the same fields. Two-dimensional descriptors
// lack depth and flags.
template <typename Descriptor>
uint64_t BytesOf(const Descriptor* source) {
  if (source == nullptr) return 0;
  Array3DDescriptor descriptor{.width = source->width,
                               .height = source->height,
                               .format = source->format,
                               .channels = source->channels};
  if constexpr (requires { source->depth; }) {
    descriptor.depth = source->depth;
    descriptor.flags = source->flags;
  }
  return ArrayBytes(descriptor);
}

}  // namespace

#define CREATE(name, Descriptor)                                                    \
  LIMITER_EXPORT Result name(Array* array, const Descriptor* descriptor) {          \
    return CreateArray(                                                             \
        array, BytesOf(descriptor), [&] { return driver.name(array, descriptor); }, \
        driver.cuArrayDestroy);                                                     \
  }
CREATE(cuArrayCreate, ArrayDescriptorV1)
CREATE(cuArrayCreate_v2, ArrayDescriptor)
CREATE(cuArray3DCreate, Array3DDescriptorV1)
CREATE(cuArray3DCreate_v2, Array3DDescriptor)
#undef CREATE

LIMITER_EXPORT Result cuMipmappedArrayCreate(MipmappedArray* array,
                                             const Array3DDescriptor* descriptor, unsigned levels) {
  return CreateArray(
      array, descriptor == nullptr ? 0 : MipmapBytes(*descriptor, levels),
      [&] { return driver.cuMipmappedArrayCreate(array, descriptor, levels); },
      driver.cuMipmappedArrayDestroy);
}

// A level of a mipmapped array has no charge; the driver refuses to destroy it.
LIMITER_EXPORT Result cuArrayDestroy(Array array) {
  return Process::Get().DestroyCharged(array, [&] { return driver.cuArrayDestroy(array); });
}

LIMITER_EXPORT Result cuMipmappedArrayDestroy(MipmappedArray array) {
  return Process::Get().DestroyCharged(array,
                                       [&] { return driver.cuMipmappedArrayDestroy(array); });
}

}  // namespace tessera::cuda
