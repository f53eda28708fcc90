// SPDX-License-Identifier: Apache-2.0
// Pods of this node that survive a restart of the agent. Pods that request devices are recorded in
// a journal, so that an agent that starts while the API server is unreachable knows their
// assignments. The API server's state replaces the records. After its first complete list, the
// agent forgets pods that the list does not have. Until then a pod that has ended meanwhile is
// still treated as a holder of its GPUs.
//
// The records, as JSON:
//
//   {"do":"pod","uid":…,"namespace":…,"pod":…,"created":ns,"annotations":{…},"request":{…}}
//   {"do":"gone","uid":…}
//
// Threads: the grants' thread. Cost: a record for each pod that was added, ended, or got other
// annotations, which does not wait for the disk; a rewritten journal when most records are
// obsolete. Disk errors are logged: fewer pods are remembered then.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/pods/pods.h"
#include "src/base/strings.h"
#include "src/base/uid.h"
#include "src/grant/journal.h"

namespace tessera::agent {

class RememberedPods final : public Pods, private Pods::Delegate {
 public:
  // `records`: the contents of `log`.
  RememberedPods(std::unique_ptr<Pods> pods, std::unique_ptr<grant::RecordLog> log,
                 const std::vector<std::string>& records);

  void Start(Pods::Delegate* delegate) override;
  const Map& pods() const override { return known_pods_; }
  bool synced() const override { return pods_->synced(); }
  Status last_error() const override { return pods_->last_error(); }
  void Annotate(const PodInfo& pod, const StringMap& annotations) override {
    pods_->Annotate(pod, annotations);
  }
  void Record(const PodInfo& pod, const PodEvent& event) override { pods_->Record(pod, event); }

 private:
  void OnPod(const Uid& uid) override;
  void OnPodsSynced() override;

  void Forget(const Uid& uid);
  void Remember(const PodInfo& pod);
  void Write(const std::string& record);
  Status Rewrite();

  const std::unique_ptr<Pods> pods_;
  const std::unique_ptr<grant::RecordLog> log_;
  Pods::Delegate* delegate_ = nullptr;
  Map known_pods_;
  std::map<Uid, size_t> record_hashes_;  // hash of the record of each pod that is in the log
  size_t record_count_ = 0;              // records in the log
  bool must_rewrite_ = false;            // the log has rejected a record and needs a new list
};

// Pure. Decoding returns nullopt for a record of another kind or of a later version.
std::string EncodePod(const PodInfo& pod);
std::shared_ptr<const PodInfo> DecodePod(const std::string& record);

}  // namespace tessera::agent
