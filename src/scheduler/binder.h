// SPDX-License-Identifier: Apache-2.0
// Binds pods: takes the GPUs in the ledger, then writes node and annotations to the API server in
// one request, and keeps or frees the GPUs according to the outcome.
//
//   - Failed for sure (never sent; the pod is gone, replaced or bound by another component): the
//     GPUs are free at once.
//   - Unclear (no answer: the pod may be bound): the GPUs stay taken, and no new decision is made
//     for the pod, until the API server shows its state.
//   - Bound: the GPUs stay taken until the feed shows the pod, or the API server that it is gone.
//
// Not for choosing nodes. Threads, callbacks: the runner's. Ownership: ledger, api and clock
// outlive it; once it is destroyed, pending bindings may still take effect. Cost: a request a pod.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/kube/binding.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/wire.h"

namespace tessera::scheduler {

// The requests of the binder to the API server. Callbacks run later, on the runner, and never after
// the Operation or the object is destroyed.
class BindingApi {
 public:
  virtual ~BindingApi() = default;
  // As kube::BindPod. `before_send` is called right before the request is sent, long after this
  // call if it has to wait; if it is not OK, or is never called, the request was not sent.
  virtual kube::Operation Bind(const kube::PodBinding& binding, kube::BeforeSend before_send,
                               std::function<void(const Status&)> on_done) = 0;
  // Reads the current pod, not a cached one. NOT_FOUND: no pod has this name.
  virtual kube::Operation Read(const std::string& ns, const std::string& name,
                               std::function<void(const Result<kube::PodObject>&)> on_done) = 0;
};

struct BinderOptions {
  // How long after it was sent a binding without an answer may still take effect. The API server
  // gives up on a request after a minute, but does not begin one whose client is gone.
  Duration settle = std::chrono::seconds(15);
  // Time between two reads of a pod whose binding is unclear.
  Duration recheck = std::chrono::seconds(2);
  // A bound pod that the feed has not shown for this long is read from the API server.
  Duration unseen = std::chrono::seconds(30);
};

class Binder {
 public:
  using Done = std::function<void(const Status&)>;
  // Whether this process may still write: asked when a binding is requested and when it is sent.
  using MayWrite = std::function<bool()>;

  Binder(ledger::ClusterLedger& ledger, BindingApi& api, const Clock& clock, MayWrite may_write,
         BinderOptions options = {});
  ~Binder();
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  // `pod` as the API server had it last; `uid` is of the one that was decided about.
  // INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED, PERMISSION_DENIED, NOT_FOUND: as
  // ClusterLedger::Assume. ABORTED: bound already, another pod, or being bound. UNAVAILABLE: not
  // the leader. Else the API server's error, with "unclear" if the outcome is unknown.
  void Bind(const kube::PodObject& pod, const std::string& node, Done done);

  // Why no decision about the pod is allowed now; "" if one is.
  std::string Unsettled(const Uid& uid) const;
  size_t under_way() const { return pending_.size(); }
  // Bindings under way that the API server has not answered: they may still take effect.
  size_t unanswered() const;

  // The feed has news of the pod.
  void OnPod(const kube::PodObject& pod);
  void OnPodGone(const Uid& uid) { pending_.erase(uid); }
  // Reads pods whose binding is unclear or not shown by the feed. Call it every second or so.
  void Tick();

 private:
  enum class State { kQueued, kSent, kUnclear, kBound };
  struct Pending {
    State state = State::kQueued;
    std::string ns, name, node;
    MonotonicTime sent{};
    MonotonicTime asked{};  // when the last read was sent
    MonotonicTime next_check;
    kube::Operation operation;
  };

  static bool HasAnswer(const Pending& pending) {
    return pending.state == State::kUnclear || pending.state == State::kBound;
  }
  Status BeforeSend(const Uid& uid);
  void OnAnswer(const Uid& uid, const Status& status, const Done& done);
  void Check(const Uid& uid, Pending& pending);
  void OnRead(const Uid& uid, const Result<kube::PodObject>& pod);
  void GiveUp(const Uid& uid);

  ledger::ClusterLedger& ledger_;
  BindingApi& api_;
  const Clock& clock_;
  const MayWrite may_write_;
  const BinderOptions options_;
  std::map<Uid, Pending> pending_;
};

}  // namespace tessera::scheduler
