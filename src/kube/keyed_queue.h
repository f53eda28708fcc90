// SPDX-License-Identifier: Apache-2.0
// Work that is due for things with names, such as "ns/pod": what controllers do with what an
// informer tells. A key that is added ten times while it waits is worked on once; a key that is
// added while its work runs is worked on once more afterwards, never twice at a time; a key whose
// work failed comes again after a wait that grows for this key alone.
//
// Not for the state of things: the work looks at that when it runs.
// Threads: the runner's; work starts from a task of its own, never inside Add. `done` may be called
// at once or later, after the queue is gone too, and counts once. Idle cost: none; a key that is
// done and did not fail leaves nothing behind.
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
    Duration first_wait = std::chrono::milliseconds(100);  // after a first failure
    Duration longest_wait = std::chrono::minutes(5);
  };

  KeyedQueue(TaskRunner& runner, Options options, Work work);
  ~KeyedQueue();
  KeyedQueue(const KeyedQueue&) = delete;
  KeyedQueue& operator=(const KeyedQueue&) = delete;

  // As soon as it is its turn; a wait after a failure is over.
  void Add(const std::string& key);
  // Not before `delay` is over. Of several times the earliest counts.
  void AddAfter(const std::string& key, Duration delay);

  // Keys that are due, or come back later.
  size_t waiting() const;
  size_t running() const;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
