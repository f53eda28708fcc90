// SPDX-License-Identifier: Apache-2.0
// The order of table entries and of the calls that destroy what they stand for.
//
// An entry stays in its table until the driver has destroyed the object, and has the moment at
// which it was added. A call that destroys takes a moment before the driver's function, and
// afterwards removes only an entry that is older. A younger entry belongs to a new object, for
// which the driver uses the handle again. If two threads destroy one object at once, the driver
// does it for one of them, and that one removes the entry.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::limiter {

inline std::atomic<uint64_t> last_moment{0};

inline uint64_t NextMoment() { return last_moment.fetch_add(1) + 1; }

}  // namespace tessera::limiter
