// SPDX-License-Identifier: Apache-2.0
// A work queue of keys such as "ns/pod", like the work queues of Kubernetes controllers. A key that
// is added several times while it waits is processed once. A key that is added while it is
// processed is processed again afterwards, never concurrently. A key whose work failed is retried
// after a wait that grows for this key alone.
//
// Does not store state: the work reads the current state when it runs. Threads: the runner's. Work
// starts in its own task, never inside Add. `done` may be called immediately or later, also after
// the queue is destroyed; only its first call counts. Idle cost: none; a key that was processed
// without failure leaves no state.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"

namespace tessera::kube {

class KeyedQueue {
 public:
  using Done = std::function<void(const Status& status)>;
  using Work = std::function<void(const std::string& key, Done done)>;

  struct Options {
    size_t max_running = 1;
    Duration first_wait = std::chrono::milliseconds(100);  // after the first failure
    Duration longest_wait = std::chrono::minutes(5);
  };

  KeyedQueue(TaskRunner& runner, Options options, Work work);
  ~KeyedQueue();
  KeyedQueue(const KeyedQueue&) = delete;
  KeyedQueue& operator=(const KeyedQueue&) = delete;

  // Adds the key and ends its wait after a failure.
  void Add(const std::string& key);
  // Adds the key after `delay`. If called several times, the earliest time counts.
  void AddAfter(const std::string& key, Duration delay);

  // Keys that are queued or delayed.
  size_t waiting() const;
  size_t running() const;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
