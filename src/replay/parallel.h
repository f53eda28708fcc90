// SPDX-License-Identifier: Apache-2.0
// Runs independent jobs on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera::replay {

// Called after each job by any thread, but never concurrently.
using Progress = std::function<void(size_t done, size_t all)>;

// Calls job(0) … job(count - 1), each once, on at most `threads` threads; returns when all jobs are
// done. REQUIRES: jobs share no data that they write.
void RunJobs(size_t count, int threads, const std::function<void(size_t)>& job,
             const Progress& progress);

}  // namespace tessera::replay
