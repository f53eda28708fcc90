// SPDX-License-Identifier: Apache-2.0
// Copies of bytes, rows and planes between host memory, device memory and arrays, for streams
// (copy.cc) and for memcpy nodes (graph_nodes.cc). Threads: REQUIRES the driver's mutex.
#pragma once

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {

// The sides of a copy that must be device memory. kAny: the addresses decide.
enum class Direction { kHostToDevice, kDeviceToHost, kDeviceToDevice, kAny };

// Bytes from one row to the next, and from one plane to the next.
struct Pitches {
  uint64_t row = 0, plane = 0;
};

// `depth` planes of `height` rows of `width` bytes.
struct Box {
  uint64_t width = 0, height = 1, depth = 1;

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  uint64_t bytes() const { return width * height * depth; }
  // Bytes from the first to the last byte; UINT64_MAX: overflow.
  uint64_t Span(const Pitches& pitches) const;
};

struct BoxCopy {
  void* to = nullptr;
  const void* from = nullptr;
  Box box;
  Pitches to_pitches, from_pitches;
  Direction direction = Direction::kAny;
};

// Duration of a copy in nanoseconds, over PCIe or within the GPU's memory.
double CopyNs(const sim::GpuFacts& gpu, uint64_t bytes, bool over_pcie);

// The program's descriptor as one with wider numbers, or a descriptor of rows as one of planes.
template <typename To, typename From>
To Widen(const From& copy) {
  To wide{.src_x = copy.src_x,
          .src_y = copy.src_y,
          .src_type = copy.src_type,
          .src_host = copy.src_host,
          .src_device = copy.src_device,
          .src_array = copy.src_array,
          .src_pitch = copy.src_pitch,
          .dst_x = copy.dst_x,
          .dst_y = copy.dst_y,
          .dst_type = copy.dst_type,
          .dst_host = copy.dst_host,
          .dst_device = copy.dst_device,
          .dst_array = copy.dst_array,
          .dst_pitch = copy.dst_pitch,
          .width = copy.width,
          .height = copy.height};
  if constexpr (requires { copy.depth; }) {
    wide.src_z = copy.src_z;
    wide.src_level = copy.src_level;
    wide.src_height = copy.src_height;
    wide.dst_z = copy.dst_z;
    wide.dst_level = copy.dst_level;
    wide.dst_height = copy.dst_height;
    wide.depth = copy.depth;
  } else if constexpr (requires { wide.depth; }) {
    wide.depth = 1;
  }
  return wide;
}

// Translates the program's descriptor. kInvalidValue: a side is missing or too small for the box.
// kInvalidHandle: not an array.
Result ResolveCopy(Call& call, const Memcpy3D& copy, BoxCopy* found);
// Creates the command of a copy, which reads and writes memory when it runs.
Result PlanCopy(ContextCall& call, const BoxCopy& copy, Command* command);

}  // namespace tessera::cuda
