// SPDX-License-Identifier: Apache-2.0
// Copies of bytes, of rows and of planes of rows between host memory, device memory and arrays.
// Streams and graphs share them: copy.cc has the functions for streams, graph_nodes.cc those of
// memcpy nodes. Not for: fills (memset.cc). Threads: REQUIRES the driver's mutex.
#pragma once

#include "src/sim/cuda/driver.h"

namespace tessera::cuda {

// Which sides must be device memory. kAny: the addresses decide.
enum class Way { kHostToDevice, kDeviceToHost, kDeviceToDevice, kAny };

// Bytes from one row to the next, and from one plane to the next.
struct Pitches {
  uint64_t row = 0, plane = 0;
};

// `depth` planes of `height` rows of `width` bytes.
struct Box {
  uint64_t width = 0, height = 1, depth = 1;

  uint64_t bytes() const { return width * height * depth; }
  // Bytes from the first byte to the last; UINT64_MAX where they are more than any memory has.
  uint64_t Span(const Pitches& pitches) const;
};

struct BoxCopy {
  void* to = nullptr;
  const void* from = nullptr;
  Box box;
  Pitches to_pitches, from_pitches;
  Way way = Way::kAny;
};

// Nanoseconds that a copy takes, over PCIe or within the GPU's memory.
double CopyNs(const sim::GpuFacts& gpu, uint64_t bytes, bool over_pcie);

// What the descriptor of the program means: kInvalidValue where a side is missing or too small for
// the box, kInvalidHandle for an array that is none.
Result FindBox(Call& call, const Memcpy3D& copy, BoxCopy* found);
// The command that carries out the copy. It reads and writes memory when it runs.
Result PlanCopy(ContextCall& call, const BoxCopy& copy, Command* command);

}  // namespace tessera::cuda
