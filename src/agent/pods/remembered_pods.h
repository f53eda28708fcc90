// SPDX-License-Identifier: Apache-2.0
// The pods of this node, and their memory: those that ask for devices are written down as they are
// seen, so that an agent that starts while the API server is away still knows what the pods that
// were bound before are assigned. What the server says goes first, and once it has said everything,
// pods that it does not know are forgotten; until then one that ended meanwhile keeps its room from
// local choices and from what is offered, and nothing else.
//
// The records, as JSON:
//
//   {"do":"pod","uid":…,"namespace":…,"pod":…,"created":ns,"annotations":{…},"request":{…}}
//   {"do":"gone","uid":…}
//
// Threads: the grants'. Cost: a record where a pod came, ended, or got other annotations, which
// does not wait for the disk; a new list when most of it is history. Errors of the disk are logged:
// then less is remembered.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/pods/pods.h"
#include "src/grant/journal.h"

namespace tessera::agent {

class RememberedPods final : public Pods, private Pods::Listener {
 public:
  // `records` are those that the log holds.
  RememberedPods(std::unique_ptr<Pods> pods, std::unique_ptr<grant::RecordLog> log,
                 const std::vector<std::string>& records);

  void Start(Pods::Listener* listener) override;
  const Map& pods() const override { return known_; }
  bool synced() const override { return pods_->synced(); }
  Status trouble() const override { return pods_->trouble(); }
  void Annotate(const PodInfo& pod, const device::Annotations& annotations) override {
    pods_->Annotate(pod, annotations);
  }
  void Record(const PodInfo& pod, const PodEvent& event) override { pods_->Record(pod, event); }

 private:
  void OnPod(const std::string& uid) override;
  void OnPodsSynced() override;

  void Forget(const std::string& uid);
  void Remember(const PodInfo& pod);
  void Write(const std::string& record);
  Status Rewrite();

  const std::unique_ptr<Pods> pods_;
  const std::unique_ptr<grant::RecordLog> log_;
  Pods::Listener* listener_ = nullptr;
  Map known_;
  std::map<std::string, size_t> written_;  // hash of the record of each pod that is in the log
  size_t records_ = 0;                     // in the log
  bool rewrite_ = false;                   // the log has refused a record and wants a new list
};

// Pure. Nothing where the record is of another kind, or of a later version.
std::string EncodePod(const PodInfo& pod);
std::shared_ptr<const PodInfo> DecodePod(const std::string& record);

}  // namespace tessera::agent
