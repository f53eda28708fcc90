// SPDX-License-Identifier: Apache-2.0
// Gives a process its slot in `usage`, and clears the slots of processes that are gone. region.h
// says what a slot is, and why its lock outlives the descriptor.
//
// A process whose lock is free may still be on its way out: the kernel drops the mapping, and with
// it the lock, before it closes the GPU's device files. Its memory is free only when the process is
// gone from /proc, or is a zombie, which has closed its files. Threads: any. Functions return 0 or
// an errno.
#pragma once

#include <cstdint>

#include "src/limiter/region.h"

namespace tessera::limiter {

// Map the files, and check their headers. EPROTO: not such a file, or of a version that this
// program does not know.
int MapLimits(const char* path, const Limits** limits);
int MapUsage(const char* path, Usage** usage);

// Makes `usage`, whole or not at all, where it is missing.
int MakeUsage(const char* path);

// Owns a slot of the file at `path` from now on. The mapping that is given back holds the lock, is
// not inherited by fork, and must never be unmapped. EAGAIN: all slots are owned.
int ClaimSlot(const char* path, Usage** usage, uint32_t* slot);

// Clears the slots of processes that are gone, as this process's /proc shows them. Gives their
// number, or -1 where the file cannot be opened.
int SweepSlots(const char* path, Usage* usage);

}  // namespace tessera::limiter
