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
  std::mutex reporting;  // guards `done` and its report; jobs share nothing else
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      job(i);
      const std::lock_guard lock(reporting);
      ++done;
      if (progress) progress(done, count);
    }
  };
  std::vector<std::thread> others;
  for (size_t n = 1; n < std::min<size_t>(static_cast<size_t>(threads), count); ++n) {
    others.emplace_back(work);
  }
  work();
  for (std::thread& thread : others) thread.join();
}

}  // namespace tessera::replay
