// SPDX-License-Identifier: Apache-2.0
// Marks the descriptors by which programs share device memory (cuMemExportToShareableHandle). The
// memory exists as long as a copy of a descriptor is open in any process, and no function of the
// driver reports whether a copy is open. So the limiter takes an open-file-description lock, which
// the kernel keeps until all copies are closed. The lock is on a range of bytes far beyond the end
// of the file: the mark. The offset of the range encodes the id of the piece and the number of the
// export. The length of the range encodes the size of the piece. Threads: any. Cost: some system
// calls.
#pragma once

#include <stdint.h>

namespace tessera::limiter {

// The piece of memory that a marked descriptor exports.
struct PieceMark {
  uint64_t id = 0;  // of the piece; 0: none
  uint64_t bytes = 0;
};

// An id that is unique with high probability. The result is never 0.
uint64_t NewPieceId();
// Marks a descriptor that the driver has returned. `*probe_fd` is the descriptor for
// HasOpenDescriptor. If it is -1, MarkDescriptor stores a new descriptor in it, which the caller
// owns. False: the descriptor cannot be marked; errno is EMFILE or ENFILE if no descriptor was
// free.
bool MarkDescriptor(int fd, const PieceMark& mark, int* probe_fd);
// Whether a descriptor of the piece is open in any process, however often it was exported.
bool HasOpenDescriptor(int probe_fd, const PieceMark& mark);
// Finds the mark of a descriptor. False: the descriptor has no mark.
bool FindMark(int fd, PieceMark* mark);

}  // namespace tessera::limiter
