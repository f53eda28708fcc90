// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/memory/array_size.h"

namespace tessera::limiter {
namespace {

constexpr uint64_t kTileBytes = 64, kTileRows = 8;
// Above every GPU's maximum in any dimension, so that no product overflows.
constexpr uint64_t kMaxExtent = 1 << 20;

// A range of formats that pack or subsample channels. A square of `side` x `side` elements takes
// `bits`.
struct FormatRange {
  unsigned first, last;  // CUarray_format
  unsigned side, bits;
};
constexpr FormatRange kPackedFormats[] = {
    {0x50, 0x50, 1, 32},  // 10 bits for each color, 2 of alpha
    {0x51, 0x51, 1, 16},  // packed YUV 4:2:2
    {0x52, 0x52, 1, 32},  // packed YUV 4:4:4 with alpha
    // YUV in two planes: 4:2:0, 4:2:2 and 4:4:4, each of 8 and 16 bits.
    {0x53, 0x53, 1, 12},
    {0x54, 0x54, 1, 24},
    {0x55, 0x55, 1, 16},
    {0x56, 0x56, 1, 32},
    {0x57, 0x57, 1, 24},
    {0x58, 0x58, 1, 48},
    // The same in three planes.
    {0x59, 0x59, 1, 12},
    {0x5a, 0x5a, 1, 24},
    {0x5b, 0x5b, 1, 16},
    {0x5c, 0x5c, 1, 32},
    {0x5d, 0x5d, 1, 24},
    {0x5e, 0x5e, 1, 48},
    {0x91, 0x92, 4, 64},   // BC1
    {0x93, 0x96, 4, 128},  // BC2, BC3
    {0x97, 0x98, 4, 64},   // BC4
    {0x99, 0x9e, 4, 128},  // BC5 to BC7
    {0x9f, 0xa1, 1, 24},   // P010, P016
    {0xa2, 0xa2, 1, 16},   // NV16
    {0xa3, 0xa4, 1, 32},   // P210, P216
    {0xa5, 0xa5, 1, 16},   // YUY2
    {0xa6, 0xa9, 1, 32},   // Y210, Y216, AYUV, Y410
    {0xb0, 0xb0, 1, 12},   // NV12
    {0xb1, 0xb1, 1, 64},   // Y416
    {0xb2, 0xb2, 1, 24},   // YUV 4:4:4 in three planes of 8 bits
    {0xb3, 0xb3, 1, 48},   // YUV 4:4:4 in three planes of 10 bits
    {0xb4, 0xb4, 1, 24},   // YUV 4:4:4 in two planes of 8 bits
    {0xb5, 0xb5, 1, 48},   // YUV 4:4:4 in two planes of 16 bits
    // Normalized integers, unsigned and then signed: 1, 2 and 4 channels of 8 and then 16 bits.
    {0xc0, 0xc0, 1, 8},
    {0xc1, 0xc1, 1, 16},
    {0xc2, 0xc2, 1, 32},
    {0xc3, 0xc3, 1, 16},
    {0xc4, 0xc4, 1, 32},
    {0xc5, 0xc5, 1, 64},
    {0xc6, 0xc6, 1, 8},
    {0xc7, 0xc7, 1, 16},
    {0xc8, 0xc8, 1, 32},
    {0xc9, 0xc9, 1, 16},
    {0xca, 0xca, 1, 32},
    {0xcb, 0xcb, 1, 64},
};

// An unknown format counts 32 bits for each channel.
FormatRange FormatOf(unsigned format, unsigned channels) {
  for (const FormatRange& range : kPackedFormats) {
    if (format >= range.first && format <= range.last) return range;
  }
  unsigned bits = 32;
  if (format == cuda::kFormatUint8 || format == cuda::kFormatInt8) bits = 8;
  if (format == cuda::kFormatUint16 || format == cuda::kFormatInt16 || format == cuda::kFormatHalf)
    bits = 16;
  return {format, format, 1, bits * channels};
}

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
uint64_t AtLeastOne(uint64_t value) { return value == 0 ? 1 : value; }

bool TakesMemory(const cuda::Array3DDescriptor& descriptor) {
  if ((descriptor.flags & (cuda::kArraySparse | cuda::kArrayDeferredMapping)) != 0) return false;
  return descriptor.width != 0 && descriptor.width <= kMaxExtent &&
         descriptor.height <= kMaxExtent && descriptor.depth <= kMaxExtent &&
         descriptor.channels != 0 && descriptor.channels <= 4;
}

uint64_t LayoutBytes(const cuda::Array3DDescriptor& descriptor) {
  const FormatRange format = FormatOf(descriptor.format, descriptor.channels);
  const uint64_t columns = (descriptor.width + format.side - 1) / format.side;
  const uint64_t rows = (AtLeastOne(descriptor.height) + format.side - 1) / format.side;
  return RoundUp((columns * format.bits + 7) / 8, kTileBytes) * RoundUp(rows, kTileRows) *
         AtLeastOne(descriptor.depth);
}

size_t Half(size_t extent) { return extent > 1 ? extent / 2 : extent; }

}  // namespace

uint64_t ArrayBytes(const cuda::Array3DDescriptor& descriptor) {
  return TakesMemory(descriptor) ? LayoutBytes(descriptor) : 0;
}

uint64_t MipmapBytes(const cuda::Array3DDescriptor& descriptor, unsigned levels) {
  if (!TakesMemory(descriptor)) return 0;
  const bool layered = (descriptor.flags & cuda::kArrayLayered) != 0;
  cuda::Array3DDescriptor level = descriptor;
  uint64_t bytes = LayoutBytes(level);
  for (unsigned i = 1; i < levels; ++i) {
    if (level.width <= 1 && level.height <= 1 && (layered || level.depth <= 1)) break;
    level.width = Half(level.width);
    level.height = Half(level.height);
    if (!layered) level.depth = Half(level.depth);
    bytes += LayoutBytes(level);
  }
  return bytes;
}

}  // namespace tessera::limiter
