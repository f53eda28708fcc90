// SPDX-License-Identifier: Apache-2.0
// Follows a collection of objects: gets all of them, then watches from there, with bookmarks; after
// a broken stream it goes on where it was, after 410 (the version is gone) it begins again. Never
// gives up: it waits longer and longer, with jitter, and says why.
//
// All of them come in one stream where the server can do that (sendInitialEvents, on by default
// since Kubernetes 1.34), which costs it megabytes less than a list; else in pages.
//
// Not for: keeping the objects (informer.h). Threads, callbacks: the client's runner; never after
// the Watch is gone. Ownership: the client and the delegate must outlive it. A delegate may destroy
// the Watch from inside a call. Idle cost: what the server sends, a bookmark a minute.
#pragma once

#include <memory>
#include <string>

#include "src/base/status.h"
#include "src/kube/client.h"

namespace tessera::kube {

class Watch {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Objects follow as OnObject; where that breaks off, another OnListBegin. Those known from
    // before that are not among them until OnListEnd do not exist any more.
    virtual void OnListBegin() = 0;
    virtual void OnListEnd() = 0;
    // Added or changed; may come more than once for the same version.
    virtual void OnObject(const RawObject& object) = 0;
    virtual void OnDeleted(const RawObject& last_state) = 0;
    // For logs and metrics; nothing needs to be done.
    virtual void OnTrouble(const Status& status, Duration retry_in) = 0;
    // The server answers again, after OnTrouble.
    virtual void OnRecovered() {}
  };

  struct Options {
    // The server ends a watch after this long, plus up to as much again (jitter).
    Duration round = std::chrono::minutes(5);
    // A stream that is silent for longer is taken for dead. Bookmarks come each minute or so.
    Duration stall = std::chrono::minutes(3);
    size_t max_event = 8 << 20;
    // Asks for everything in one stream. A server that rejects this, or that is silent for
    // `initial` before the end (before 1.27 servers ignore the parameter and wait for changes), is
    // asked for lists in pages, and for a stream again once `pages` has passed: it may have been
    // upgraded.
    bool stream_initial = true;
    Duration initial = std::chrono::minutes(1);
    Duration pages = std::chrono::minutes(30);
  };

  // Starts at once. `what` says type, namespace, selectors, page size and encoding.
  Watch(Client& client, ListQuery what, Delegate& delegate, Options options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
