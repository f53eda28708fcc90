// SPDX-License-Identifier: Apache-2.0
// Finds out whose pods are gone, and takes their entries off the ledger. A pod is gone when
//
//   the API server has it no more, or says that it has ended, and the kubelet does not list it;
//   or the kubelet does not list it twice in a row, a minute apart, where nobody can be asked more;
//   or another container wants its GPU, and the kubelet does not say that it has the ids.
//
// So nothing is given on while containers still end. Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "src/agent/grant_ledger.h"
#include "src/agent/kubelet.h"
#include "src/agent/pods.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

class EndedPods {
 public:
  static constexpr Duration kPruneInterval = std::chrono::seconds(60);
  // Pods end in bursts; one look for all of them.
  static constexpr Duration kBurst = std::chrono::milliseconds(20);
  // Between looks at pods that end: the kubelet takes its time.
  static constexpr Duration kFirstPause = std::chrono::milliseconds(100);
  static constexpr Duration kLongestPause = std::chrono::seconds(10);
  using PodsDone = std::function<void(const Result<PodDevices>&)>;

  // All outlive it; `pods` may be null. `released` is called after entries have gone.
  EndedPods(TaskRunner* runner, GrantLedger* ledger, PodResources* kubelet, const Pods* pods,
            std::function<void()> released);
  EndedPods(const EndedPods&) = delete;
  EndedPods& operator=(const EndedPods&) = delete;

  // Asks the kubelet with a call that starts now or later, never with one that is under way: it may
  // have looked before the asking pod was admitted.
  void List(PodsDone done);
  // Releases those of `conflicts` whose pods are gone. UNAVAILABLE while nobody knows; OK leaves
  // those whose pods live.
  Status Resolve(const std::vector<GrantLedger::Conflict>& conflicts, const ContainerRef& who,
                 const Result<PodDevices>& listed);
  // The API server says that pods have ended or are gone: looks soon, then again until the kubelet
  // agrees.
  void LookSoon();
  // Looks each minute while there is anything to look after.
  void PruneLater();

 private:
  void StartList();
  void LookAfter(Duration pause);
  void Look();
  // All of whom the API server says that they have ended, and the kubelet does not list them. False
  // where it still lists some, or nobody knows.
  bool ReleaseEnded(const Result<PodDevices>& listed);
  void Prune(const Result<PodDevices>& listed);
  bool EndedByApi(const ContainerRef& holder) const;
  bool LivesByApi(const ContainerRef& holder) const;
  bool NamesakeKnown(const ContainerRef& holder) const;
  void Release(const GrantLedger::Key& key);

  TaskRunner* const runner_;
  GrantLedger* const ledger_;
  PodResources* const kubelet_;
  const Pods* const pods_;
  const std::function<void()> released_;

  std::vector<PodsDone> waiting_;
  bool listing_ = false;
  bool prune_planned_ = false;
  bool look_planned_ = false;
  Duration pause_ = kFirstPause;
  std::set<GrantLedger::Key> missing_;  // their pods were not listed at the last pruning
  const std::shared_ptr<EndedPods*> self_ = std::make_shared<EndedPods*>(this);
};

}  // namespace tessera::agent
