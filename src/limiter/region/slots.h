// SPDX-License-Identifier: Apache-2.0
// Assigns a slot of `usage` to a process, and clears the slots of dead processes. region.h defines
// slots and explains why the lock of a slot outlives the descriptor.
//
// A process whose lock is free may still be ending: the kernel drops the mapping, and with it the
// lock, before it closes the GPU's device files. The memory of the process is free only when the
// process is gone from /proc, or is a zombie, which has closed its files. Threads: any. Functions
// return 0 or an errno.
#pragma once

#include <cstdint>

#include "src/limiter/region.h"

namespace tessera::limiter {

// Each of these functions maps a file and checks its header. EPROTO: see MapFile.
int MapLimits(const char* path, const Limits** limits);
int MapUsage(const char* path, Usage** usage);

// Creates `usage` atomically if it is missing.
int MakeUsage(const char* path);

// Makes this process the owner of a slot of the file at `path`. The returned mapping holds the
// lock, is not inherited by fork, and must never be unmapped. EAGAIN: all slots are owned.
int ClaimSlot(const char* path, Usage** usage, uint32_t* slot);

// Clears the slots of processes that are gone from /proc, are zombies, or have called exec. Returns
// the number of cleared slots, or -1 if the file cannot be opened.
int SweepSlots(const char* path, Usage* usage);

}  // namespace tessera::limiter
