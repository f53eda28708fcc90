// SPDX-License-Identifier: Apache-2.0
#include "src/replay/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::replay {

void RunJobs(size_t count, int threads, const std::function<void(size_t)>& job,
             const Progress& progress) {
  std::atomic<size_t> next = 0;
  size_t done = 0;
  std::mutex progress_mutex;  // guards `done` and the calls of `progress`
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      job(i);
      const std::lock_guard lock(progress_mutex);
      ++done;
      if (progress) progress(done, count);
    }
  };
  std::vector<std::thread> workers;
  for (size_t n = 1; n < std::min<size_t>(static_cast<size_t>(threads), count); ++n) {
    workers.emplace_back(work);
  }
  work();
  for (std::thread& thread : workers) thread.join();
}

}  // namespace tessera::replay
