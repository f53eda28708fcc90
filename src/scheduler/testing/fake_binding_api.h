// SPDX-License-Identifier: Apache-2.0
// For tests: the binder's API server. The first binding of a pod wins. Responses are sent when the
// test says so, or never. Threads: the test's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/scheduler/binder.h"

namespace tessera::scheduler::testing {

class FakeBindingApi final : public BindingApi {
 public:
  // What happens to the next binding requests. kLost: the request never arrives. kNotSent: the
  // client drops the request before it calls `before_send`.
  enum class Outcome { kBinds, kBindsWithoutResponse, kLost, kForbidden, kNotSent };

  void Put(kube::PodObject pod) { pods_[pod.meta.ns + "/" + pod.meta.name] = std::move(pod); }
  void Remove(const std::string& key) { pods_.erase(key); }
  const kube::PodObject* Find(const std::string& key) const {
    const auto found = pods_.find(key);
    return found == pods_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, kube::PodObject>& pods() const { return pods_; }
  void SetOutcome(Outcome outcome) { outcome_ = outcome; }
  int requests() const { return requests_; }

  // Sends all due responses, and the responses that these cause.
  void Run() {
    while (!due_.empty()) {
      const auto task = std::move(due_.front());
      due_.pop_front();
      task();
    }
  }
  size_t waiting() const { return due_.size(); }

  // Requests wait unsent until Release, which also sends the responses.
  void Hold() { held_ = true; }
  void Release() {
    held_ = false;
    for (const auto& send : std::exchange(queue_, {})) send();
    Run();
  }

  kube::Operation Bind(const kube::PodBinding& binding, kube::BeforeSend before_send,
                       std::function<void(const Status&)> on_done) override {
    if (!held_) return Send(binding, before_send, std::move(on_done));
    auto operation = std::make_shared<kube::Operation>();
    queue_.push_back([this, binding, before_send, on_done = std::move(on_done),
                      weak = std::weak_ptr(operation)] {
      if (const auto alive = weak.lock()) *alive = Send(binding, before_send, on_done);
    });
    return kube::Operation([operation = std::move(operation)]() mutable { operation.reset(); });
  }

  kube::Operation Send(const kube::PodBinding& binding, const kube::BeforeSend& before_send,
                       std::function<void(const Status&)> on_done) {
    Status status;
    if (outcome_ == Outcome::kNotSent) {
      status = Status(Code::kDeadlineExceeded, "waited too long in the queue");
      return Later([status, on_done = std::move(on_done)] { on_done(status); });
    }
    if (status = before_send(); !status.ok()) {
      return Later([status, on_done = std::move(on_done)] { on_done(status); });
    }
    ++requests_;
    if (outcome_ == Outcome::kForbidden) status = Status(Code::kPermissionDenied, "forbidden");
    if (outcome_ == Outcome::kBinds || outcome_ == Outcome::kBindsWithoutResponse)
      status = Apply(binding);
    const bool silent = outcome_ == Outcome::kBindsWithoutResponse || outcome_ == Outcome::kLost;
    if (silent) status = Status(Code::kDeadlineExceeded, "no answer in time");
    return Later([status, on_done = std::move(on_done)] { on_done(status); });
  }

  kube::Operation Read(const std::string& ns, const std::string& name,
                       std::function<void(const Result<kube::PodObject>&)> on_done) override {
    const kube::PodObject* pod = Find(ns + "/" + name);
    Result<kube::PodObject> answer = Status(Code::kNotFound, "pods \"" + name + "\" not found");
    if (pod != nullptr) answer = *pod;
    return Later([answer, on_done = std::move(on_done)] { on_done(answer); });
  }

 private:
  Status Apply(const kube::PodBinding& binding) {
    const auto found = pods_.find(binding.ns + "/" + binding.pod);
    if (found == pods_.end()) return Status(Code::kNotFound, "pod not found");
    kube::PodObject& pod = found->second;
    if (pod.meta.uid != binding.uid) return Status(Code::kAborted, "another UID");
    if (!pod.node_name.empty()) return Status(Code::kAborted, "is already assigned to a node");
    pod.node_name = binding.node;
    for (const auto& [key, value] : binding.annotations) pod.meta.annotations[key] = value;
    return {};
  }
  kube::Operation Later(std::function<void()> task) {
    const auto alive = std::make_shared<bool>(true);
    due_.push_back([alive, task = std::move(task)] {
      if (*alive) task();
    });
    return kube::Operation([alive] { *alive = false; });
  }

  std::map<std::string, kube::PodObject> pods_;
  std::deque<std::function<void()>> due_;
  Outcome outcome_ = Outcome::kBinds;
  int requests_ = 0;
  bool held_ = false;
  std::vector<std::function<void()>> queue_;
};

}  // namespace tessera::scheduler::testing
