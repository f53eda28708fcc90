// SPDX-License-Identifier: Apache-2.0
// A moment is a sequence number. Moments order the entries of tables and the calls that destroy
// objects, because the driver may give the handle of a destroyed object to another thread at once.
//
// An entry has the moment at which it was added, and stays in its table until the driver has
// destroyed its object. The limiter takes a moment before it calls the driver to destroy an object.
// Afterwards it removes the entry only if the entry is older than that moment. A younger entry
// belongs to a new object with the same handle. If two threads destroy one object at once, the
// driver succeeds for one of them, and that thread removes the entry.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::limiter {

inline std::atomic<uint64_t> last_moment{0};

// Later than the addition of every entry.
inline constexpr uint64_t kAfterAllMoments = UINT64_MAX;

inline uint64_t NextMoment() { return last_moment.fetch_add(1) + 1; }

}  // namespace tessera::limiter
