// SPDX-License-Identifier: Apache-2.0
// Fills of device memory, in one row or several.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "src/sim/cuda/memory/copy.h"
#include "src/sim/cuda/stream/launch.h"

namespace tessera::cuda {
namespace {

// `height` rows of `width` elements; `pitch` bytes from one row to the next.
struct Area {
  DevicePtr to = 0;
  size_t pitch = 0, width = 0, height = 1;
};

constexpr uint64_t kPage = 4096;
constexpr uint64_t kDiscardBytes = 2 << 20;  // minimum for Discard

// Zeroes device memory by returning its pages to the host, because programs may zero more memory of
// a GPU than the host has. False: the host refuses; some pages may be zero already.
bool Discard(DevicePtr to, uint64_t bytes) {
  const DevicePtr begin = (to + kPage - 1) / kPage * kPage, end = (to + bytes) / kPage * kPage;
  void* pages = reinterpret_cast<void*>(begin);
  // MADV_REMOVE is for memory with a file, whose contents MADV_DONTNEED would keep. For memory
  // without a file it fails with EINVAL.
  if (madvise(pages, end - begin, MADV_REMOVE) != 0 &&
      (errno != EINVAL || madvise(pages, end - begin, MADV_DONTNEED) != 0)) {
    return false;
  }
  memset(reinterpret_cast<void*>(to), 0, begin - to);
  memset(reinterpret_cast<void*>(end), 0, to + bytes - end);
  return true;
}

template <typename T>
Result PlanFill(ContextCall& call, const Area& area, T value, Command* command) {
  uint64_t row_bytes = 0;
  if (__builtin_mul_overflow(area.width, sizeof(T), &row_bytes)) return Result::kInvalidValue;
  const Box box{.width = row_bytes, .height = area.height};
  const bool aligned =
      area.to % sizeof(T) == 0 && (area.height == 1 || area.pitch % sizeof(T) == 0);
  const bool rows_apart = area.height == 1 || area.pitch >= row_bytes;
  const Allocation* allocation = call->FindAllocation(area.to, box.Span({.row = area.pitch}));
  if (!aligned || !rows_apart || allocation == nullptr) return Result::kInvalidValue;
  const bool discard = value == 0 && area.height == 1 && row_bytes >= kDiscardBytes &&
                       allocation->kind == MemoryKind::kDevice;
  command->remaining_ns =
      CopyNs(call->FactsOf(call.context()->device), box.bytes(), /*over_pcie=*/false);
  command->effect = [area, value, row_bytes, discard] {
    if (discard && Discard(area.to, row_bytes)) return;
    for (size_t row = 0; row < area.height; ++row) {
      std::fill_n(reinterpret_cast<T*>(area.to + row * area.pitch), area.width, value);
    }
  };
  return Result::kSuccess;
}

template <typename T>
Result Fill(const Area& area, T value, Stream stream) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* queue = call->FindStream(call.context(), stream);
  if (queue == nullptr) return Result::kInvalidHandle;
  if (area.width == 0 || area.height == 0) return Result::kSuccess;
  Command command;
  const Result result = PlanFill(call, area, value, &command);
  if (result != Result::kSuccess) return result;
  return call.Push(queue, std::move(command), GraphNodeType::kMemset);
}

}  // namespace

Result PlanMemset(ContextCall& call, const MemsetNodeParameters& parameters, Command* command) {
  const Area area{parameters.to, parameters.pitch, parameters.width, parameters.height};
  if (area.width == 0 || area.height == 0) return Result::kInvalidValue;
  switch (parameters.element_bytes) {
    case 1:
      return PlanFill(call, area, uint8_t(parameters.value), command);
    case 2:
      return PlanFill(call, area, uint16_t(parameters.value), command);
    case 4:
      return PlanFill(call, area, parameters.value, command);
    default:
      return Result::kInvalidValue;
  }
}

// The functions for elements of `bits` bits: one row or several rows, with or without a stream.
#define MEMSET(bits, type)                                                                  \
  CUDA_EXPORT Result cuMemsetD##bits##_v2(DevicePtr to, type value, size_t count) {         \
    return Fill({.to = to, .width = count}, value, nullptr);                                \
  }                                                                                         \
  CUDA_EXPORT Result cuMemsetD##bits##Async(DevicePtr to, type value, size_t count,         \
                                            Stream stream) {                                \
    return Fill({.to = to, .width = count}, value, stream);                                 \
  }                                                                                         \
  CUDA_EXPORT Result cuMemsetD2D##bits##_v2(DevicePtr to, size_t pitch, type value,         \
                                            size_t columns, size_t rows) {                  \
    return Fill(Area{to, pitch, columns, rows}, value, nullptr);                            \
  }                                                                                         \
  CUDA_EXPORT Result cuMemsetD2D##bits##Async(DevicePtr to, size_t pitch, type value,       \
                                              size_t columns, size_t rows, Stream stream) { \
    return Fill(Area{to, pitch, columns, rows}, value, stream);                             \
  }                                                                                         \
  CUDA_PER_THREAD(cuMemsetD##bits##_v2_ptds, cuMemsetD##bits##_v2, 3)                       \
  CUDA_PER_THREAD(cuMemsetD##bits##Async_ptsz, cuMemsetD##bits##Async, 4)                   \
  CUDA_PER_THREAD(cuMemsetD2D##bits##_v2_ptds, cuMemsetD2D##bits##_v2, 5)                   \
  CUDA_PER_THREAD(cuMemsetD2D##bits##Async_ptsz, cuMemsetD2D##bits##Async, 6)
MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned)
#undef MEMSET

}  // namespace tessera::cuda
