// SPDX-License-Identifier: Apache-2.0
// Follows a collection of objects: lists it in pages, then watches from there, with bookmarks; after
// a broken stream it goes on where it was, after 410 (the version is gone) it lists again. Never
// gives up: it waits longer and longer, with jitter, and says why.
//
// Not for: keeping the objects. Threads, callbacks: the client's runner; never after the Watch is
// gone. Ownership: the client and the delegate must outlive it. A delegate may destroy the Watch
// from inside a call. Idle cost: what the server sends, a bookmark a minute.
#pragma once

#include <memory>
#include <string>

#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/kube/client.h"

namespace tessera::kube {

class Watch {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Objects follow as OnObject. Those known from before that are not among them until OnListEnd
    // do not exist any more.
    virtual void OnListBegin() = 0;
    virtual void OnListEnd() = 0;
    // Added or changed; may come more than once for the same version.
    virtual void OnObject(const Json& object) = 0;
    virtual void OnDeleted(const Json& last_state) = 0;
    // For logs and metrics; nothing needs to be done.
    virtual void OnTrouble(const Status& status, Duration retry_in) = 0;
  };

  struct Options {
    // The server ends a watch after this long, plus up to as much again (jitter).
    Duration round = std::chrono::minutes(5);
    // A stream that is silent for longer is taken for dead. Bookmarks come each minute or so.
    Duration stall = std::chrono::minutes(3);
    size_t max_event = 8 << 20;
  };

  // Starts at once. `what` says type, namespace, selectors and page size.
  Watch(Client& client, ListQuery what, Delegate& delegate, Options options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
