// SPDX-License-Identifier: Apache-2.0
// The pods of a node as a test sets them. Threads: one.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/agent/pods/pods.h"
#include "src/base/strings.h"
#include "src/base/uid.h"
#include "src/device/pod_annotations.h"

namespace tessera::agent {

class FakeApiPods final : public Pods {
 public:
  void Start(Delegate* delegate) override { delegate_ = delegate; }
  const Map& pods() const override { return pods_; }
  bool synced() const override { return synced_; }
  Status last_error() const override { return last_error_; }
  void Annotate(const PodInfo& pod, const StringMap& annotations) override {
    for (const auto& [key, value] : annotations) written[pod.name][key] = value;
    if (!apply_annotations || !pods_.contains(pod.uid)) return;
    PodInfo now = *pods_.at(pod.uid);
    for (const auto& [key, value] : annotations) now.annotations[key] = value;
    Set(std::move(now));
  }
  void Record(const PodInfo& pod, const PodEvent& event) override {
    events.emplace_back(pod.name, event);
  }

  // Containers by name in the order of the spec; those named "init…" are init containers.
  static PodInfo Make(const std::string& name,
                      const std::vector<std::pair<std::string, StringMap>>& containers,
                      const Uid& uid = Uid()) {
    device::PodSpec spec;
    for (const auto& [container, limits] : containers) {
      const bool init = container.starts_with("init");
      spec.containers.push_back({.name = container,
                                 .phase = init ? device::Phase::kInit : device::Phase::kMain,
                                 .limits = limits});
    }
    return {.uid = uid.empty() ? Uid("uid-" + name) : uid,
            .ns = "default",
            .name = name,
            .request = device::ParseRequest(spec, {})};
  }
  void Set(PodInfo pod) {
    const Uid uid = pod.uid;
    pods_[uid] = std::make_shared<const PodInfo>(std::move(pod));
    if (delegate_ != nullptr) delegate_->OnPod(uid);
  }
  void Remove(const Uid& uid) {
    pods_.erase(uid);
    delegate_->OnPod(uid);
  }
  // Returns to the state before the first complete list.
  void Unsync() { synced_ = false; }
  void Sync() {
    synced_ = true;
    delegate_->OnPodsSynced();
  }

  Status last_error_;
  bool apply_annotations = true;                         // written annotations change the pods
  std::map<std::string, StringMap> written;              // by name
  std::vector<std::pair<std::string, PodEvent>> events;  // by name, in order

 private:
  Delegate* delegate_ = nullptr;
  Map pods_;
  bool synced_ = false;
};

}  // namespace tessera::agent
