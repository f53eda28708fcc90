// SPDX-License-Identifier: Apache-2.0
// A cluster as it is at one time, for a command that answers and ends: nodes, pods and the quota
// are read side by side, each object goes into the ledger as it comes, and nothing is kept beside
// it but what commands ask for and no ledger has. ledger/feed.h follows a cluster instead.
//
// Threads, callbacks: the client's runner. Ownership: client, ledger and delegate outlive it; the
// delegate may destroy it later, not inside a call.
#pragma once

#include <memory>
#include <string>

#include "src/cli/view.h"
#include "src/kube/client.h"
#include "src/ledger/feed.h"

namespace tessera::cli {

class Snapshot {
 public:
  struct Options {
    ledger::FeedOptions feed;
    std::string pod;  // "ns/name" of the one that FindPod shall find
  };
  // OnSynced is the end. OnTrouble with ABORTED: reading has begun anew, and the ledger may have
  // objects that are gone.
  using Delegate = ledger::ClusterFeed::Delegate;

  Snapshot(kube::Client& client, ledger::ClusterLedger& ledger, Options options,
           Delegate& delegate);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  const kube::PodObject* FindPod(const std::string& key) const;
  NodeFacts FactsOfNode(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a Node object says beside what the ledger keeps of it.
NodeFacts FactsIn(const kube::NodeObject& node);

}  // namespace tessera::cli
