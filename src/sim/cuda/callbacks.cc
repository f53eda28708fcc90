// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/callbacks.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "src/sim/state.h"

namespace tessera::cuda {
namespace {

struct Queue {
  std::mutex mutex;  // between the program's threads and ours
  std::condition_variable changed;
  std::multimap<uint64_t, std::function<void()>> waiting;  // the first is the one that runs
  bool started = false;
};

// Never destroyed: the thread outlives main.
Queue& TheQueue() {
  alignas(Queue) static char place[sizeof(Queue)];
  static Queue* queue = new (place) Queue();
  return *queue;
}

void Serve(Queue* queue) {
  std::unique_lock lock(queue->mutex);
  while (true) {
    if (queue->waiting.empty()) {
      queue->changed.wait(lock);
      continue;
    }
    const uint64_t now = sim::MonotonicNs();
    const auto first = queue->waiting.begin();
    if (first->first > now) {
      queue->changed.wait_for(lock, std::chrono::nanoseconds(first->first - now));
      continue;
    }
    const std::function<void()> function = first->second;
    lock.unlock();
    function();
    lock.lock();
    queue->waiting.erase(first);
    queue->changed.notify_all();
  }
}

}  // namespace

void RunAt(uint64_t when_ns, std::function<void()> function) {
  Queue& queue = TheQueue();
  std::lock_guard lock(queue.mutex);
  queue.waiting.emplace(when_ns, std::move(function));
  if (!queue.started) {
    queue.started = true;
    std::thread(Serve, &queue).detach();
  }
  queue.changed.notify_all();
}

void WaitForCallbacks(uint64_t when_ns) {
  Queue& queue = TheQueue();
  std::unique_lock lock(queue.mutex);
  queue.changed.wait(lock, [&] {
    return queue.waiting.empty() || queue.waiting.begin()->first > when_ns;
  });
}

}  // namespace tessera::cuda
