// SPDX-License-Identifier: Apache-2.0
// Follows a collection: receives all its objects, then watches for changes since the version of
// this list, with bookmarks. Resumes after a broken stream; starts again after 410 (the version is
// too old). Retries forever with growing, jittered waits, and reports the errors.
//
// The initial objects come in one stream if the server supports it (sendInitialEvents, on by
// default since Kubernetes 1.34), which costs the server less memory than a list. Otherwise they
// are listed in pages.
//
// Does not store objects; informer.h does. Threads: the client's runner, which also runs the
// callbacks, but not after the Watch is destroyed. Ownership: client and delegate outlive the
// Watch. A delegate may destroy the Watch inside a call. Without changes, the only traffic is about
// one bookmark a minute.
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
    // A list begins: its objects follow as OnObject. If the list is interrupted, OnListBegin is
    // called again. At OnListEnd, objects that were known before but not listed since OnListBegin
    // no longer exist.
    virtual void OnListBegin() = 0;
    virtual void OnListEnd() = 0;
    // The object was added or changed. May be called more than once for the same version.
    virtual void OnObject(const RawObject& object) = 0;
    virtual void OnDeleted(const RawObject& last_state) = 0;
    // For logs and metrics; the Watch retries by itself.
    virtual void OnError(const Status& status, Duration retry_in) = 0;
    // The Watch works again after OnError.
    virtual void OnRecovered() {}
  };

  struct Options {
    // The server ends a watch after a random time between `watch_timeout` and twice as long.
    Duration watch_timeout = std::chrono::minutes(5);
    // A stream that is silent for longer is considered dead. Bookmarks come about once a minute.
    Duration stall_timeout = std::chrono::minutes(3);
    size_t max_event = 8 << 20;  // bytes
    // Requests the initial objects in one stream. If the server rejects this, or is silent for
    // `initial_stall_timeout` before all initial objects have arrived (servers before 1.27 ignore
    // the parameter and wait for changes), the Watch lists in pages. After `paging_period` it tries
    // a stream again, because the server may have been upgraded.
    bool stream_initial = true;
    Duration initial_stall_timeout = std::chrono::minutes(1);
    Duration paging_period = std::chrono::minutes(30);
  };

  // Starts at once. `query` has type, namespace, selectors, page size and encoding.
  Watch(Client& client, ListQuery query, Delegate& delegate, Options options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::kube
