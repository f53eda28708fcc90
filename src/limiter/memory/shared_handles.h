// SPDX-License-Identifier: Apache-2.0
// Marks on descriptors by which programs share device memory (cuMemExportToShareableHandle). The
// memory lives as long as a copy of the descriptor is open in any process, and no call of the
// driver reports whether one is open. So the limiter takes an open-file-description lock on a range
// far beyond the end of the file, which the kernel keeps until all copies are closed. The position
// and the length of the range are the id and the size of the piece.
// Threads: any. Cost: some system calls.
#pragma once

#include <stdint.h>

namespace tessera::limiter {

struct SharedMark {
  uint64_t id = 0;  // of this export; 0: none
  uint64_t bytes = 0;
};

// Marks a descriptor that the driver has returned. `*probe_fd` is a descriptor for IsOpen, which
// the caller owns. False: the descriptor cannot be marked.
bool MarkShared(int fd, const SharedMark& mark, int* probe_fd);
// Whether a copy of the marked descriptor is open in any process.
bool IsOpen(int probe_fd, const SharedMark& mark);
// Finds the mark of a descriptor. False: it has none.
bool FindMark(int fd, SharedMark* mark);

}  // namespace tessera::limiter
