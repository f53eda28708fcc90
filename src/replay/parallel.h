// SPDX-License-Identifier: Apache-2.0
// Independent jobs on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera::replay {

// Called after each job, by any of the threads but by one at a time.
using Progress = std::function<void(size_t done, size_t all)>;

// Calls job(0) … job(count - 1), each once, on at most `threads` threads, and returns when all are
// done. REQUIRES: jobs share nothing that they write to.
void RunJobs(size_t count, int threads, const std::function<void(size_t)>& job,
             const Progress& progress);

}  // namespace tessera::replay
