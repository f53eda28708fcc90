// SPDX-License-Identifier: Apache-2.0
// The pods of this node with a memory: pods that request devices are recorded in a journal, so that
// an agent that starts while the API server is away knows the assignments of pods that were bound
// before. The server's state wins, and after its first complete list, pods that are not in it are
// forgotten. A pod that ended meanwhile keeps its GPUs from local choices and offers until then.
//
// The records, as JSON:
//
//   {"do":"pod","uid":…,"namespace":…,"pod":…,"created":ns,"annotations":{…},"request":{…}}
//   {"do":"gone","uid":…}
//
// Threads: the grants'. Cost: a record for a pod that was added, ended, or got other annotations,
// which does not wait for the disk; a new list when most of it is history. Disk errors are logged:
// fewer pods are remembered then.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/pods/pods.h"
#include "src/base/uid.h"
#include "src/grant/journal.h"

namespace tessera::agent {

class RememberedPods final : public Pods, private Pods::Listener {
 public:
  // `records`: the contents of `log`.
  RememberedPods(std::unique_ptr<Pods> pods, std::unique_ptr<grant::RecordLog> log,
                 const std::vector<std::string>& records);

  void Start(Pods::Listener* listener) override;
  const Map& pods() const override { return known_; }
  bool synced() const override { return pods_->synced(); }
  Status last_error() const override { return pods_->last_error(); }
  void Annotate(const PodInfo& pod, const device::Annotations& annotations) override {
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
  Pods::Listener* listener_ = nullptr;
  Map known_;
  std::map<Uid, size_t> written_;  // hash of the record of each pod that is in the log
  size_t records_ = 0;             // in the log
  bool rewrite_ = false;           // the log has rejected a record and needs a new list
};

// Pure. Decoding returns nullopt for a record of another kind or of a later version.
std::string EncodePod(const PodInfo& pod);
std::shared_ptr<const PodInfo> DecodePod(const std::string& record);

}  // namespace tessera::agent
