// SPDX-License-Identifier: Apache-2.0
// Events for people: what `kubectl describe` shows below an object. The same thing said again
// counts up the event that is there; many alike about one object become one "(combined from similar
// events)"; an object that says too much is cut off, so that a loop cannot flood the server.
//
// Not for state: an event may be lost, and is after an hour. Failures to write one are told to
// `on_error` and not tried again beyond what the client does.
// Threads: the client's runner. Ownership: the client must outlive it. Bounds: `max_objects`
// remembered things, those of longest ago are forgotten. Idle cost: none.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/client.h"
#include "src/kube/event_object.h"

namespace tessera::kube {

class EventRecorder {
 public:
  struct Options {
    std::string component;  // "tessera-scheduler"
    std::string instance;   // of it: the pod's or node's name
    // More different messages than that of one reason about one object within `window` are
    // combined.
    int max_similar = 10;
    Duration window = std::chrono::minutes(10);
    // Of one object: so many at once, then one per `refill`.
    int burst = 25;
    Duration refill = std::chrono::minutes(5);
    size_t max_objects = 4096;
  };
  using OnError = std::function<void(const Status&)>;

  EventRecorder(Client& client, Options options, OnError on_error);
  ~EventRecorder();
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  // `reason` is a word in camel case that people may filter by. The message is cut at the API's
  // 1024 bytes.
  void Record(const InvolvedObject& object, EventKind kind, std::string_view reason,
              std::string_view message);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
