// SPDX-License-Identifier: Apache-2.0
// Reads a cluster once, for a command that prints and ends: nodes, pods and the quota in parallel,
// each object into the ledger as it arrives. Beside the ledger it keeps only the pod that a command
// needs as an object. Does not follow a cluster (ledger/feed.h).
//
// Threads: the client's runner, which also runs the callbacks. Ownership: client, ledger and
// delegate outlive the snapshot. The delegate must not destroy it inside a call.
#pragma once

#include <memory>
#include <string>

#include "src/kube/client.h"
#include "src/ledger/feed.h"

namespace tessera::cli {

class Snapshot {
 public:
  struct Options {
    ledger::FeedOptions feed;
    std::string kept_pod;  // "ns/name" of the pod that FindPod finds
  };
  // OnSynced ends the snapshot. OnError with ABORTED: a list has restarted, and the ledger may
  // contain objects that no longer exist.
  using Delegate = ledger::ClusterFeed::Delegate;

  Snapshot(kube::Client& client, ledger::ClusterLedger& ledger, Options options,
           Delegate& delegate);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  const kube::PodObject* FindPod(const std::string& key) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::cli
