// SPDX-License-Identifier: Apache-2.0
// Records Events, which `kubectl describe` shows below an object. Repeated Events increase the
// count of the existing Event; many similar Events about one object are aggregated as "(combined
// from similar events)"; Events about one object are rate limited, so that a loop cannot flood the
// server.
//
// Do not use Events as state: an Event may be lost, and expires after an hour. Failed writes are
// reported to `on_error` and not retried beyond the client's own retries. Threads: the client's
// runner. Ownership: the client outlives the recorder. Bounds: remembers `max_objects` Events and
// objects each, and drops the least recently used. Idle cost: none.
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
    std::string instance;   // the component's pod or node
    // The number of different messages about one object with one reason within `window`. Further
    // messages are aggregated.
    int max_similar = 10;
    Duration window = std::chrono::minutes(10);
    // The rate of Events about one object: `burst` at once, then one per `refill`.
    int burst = 25;
    Duration refill = std::chrono::minutes(5);
    size_t max_objects = 4096;
  };
  using OnError = std::function<void(const Status&)>;

  EventRecorder(Client& client, Options options, OnError on_error);
  ~EventRecorder();
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  // `reason` is a word in camel case for filters. The message is truncated at the API's 1024 bytes.
  void Record(const InvolvedObject& object, EventKind kind, std::string_view reason,
              std::string_view message);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tessera::kube
