// SPDX-License-Identifier: Apache-2.0
// Binds pods: assumes the GPUs in the ledger, writes node and annotations to the API server in one
// request, and keeps or frees the GPUs according to the outcome.
//
//   - Failed for certain (never sent; the pod was deleted, replaced or bound by another component):
//     the GPUs are freed at once.
//   - Unclear (no response: the pod may be bound): the GPUs stay assumed, and no new decision is
//     made for the pod, until the API server shows its state.
//   - Bound: the GPUs stay assumed until the feed shows the pod, or the API server shows that it
//     was deleted.
//
// Does not choose nodes. Threads: the runner's, also for callbacks. Ownership: ledger, api and
// clock outlive the binder. Pending bindings may still take effect after its destruction. Cost: one
// request for each pod.
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
#include "src/kube/client.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/wire.h"

namespace tessera::scheduler {

// The requests of the binder to the API server. Callbacks run later, on the runner, and never after
// the Operation or the object is destroyed.
class BindingApi {
 public:
  virtual ~BindingApi() = default;
  // As kube::BindPod. `before_send` is called right before the request is sent, possibly long after
  // this call. If it fails or is never called, the request was not sent.
  virtual kube::Operation Bind(const kube::PodBinding& binding, kube::BeforeSend before_send,
                               std::function<void(const Status&)> on_done) = 0;
  // Reads the current pod from the API server. NOT_FOUND: no pod has this name.
  virtual kube::Operation Read(const std::string& ns, const std::string& name,
                               std::function<void(const Result<kube::PodObject>&)> on_done) = 0;
};

// The API server's BindingApi. The client outlives it.
class KubeBindingApi final : public BindingApi {
 public:
  explicit KubeBindingApi(kube::Client& client) : client_(client) {}

  kube::Operation Bind(const kube::PodBinding& binding, kube::BeforeSend before_send,
                       std::function<void(const Status&)> on_done) override;
  kube::Operation Read(const std::string& ns, const std::string& name,
                       std::function<void(const Result<kube::PodObject>&)> on_done) override;

 private:
  kube::Client& client_;
};

class Binder {
 public:
  using Done = std::function<void(const Status&)>;
  // Whether this process may still write. Called when a binding is requested and when it is sent.
  using MayWrite = std::function<bool()>;

  Binder(ledger::ClusterLedger& ledger, BindingApi& api, const Clock& clock, MayWrite may_write);
  ~Binder();
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  // `pod` is the last known object. INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED,
  // PERMISSION_DENIED, NOT_FOUND: see ClusterLedger::Assume. ABORTED: the pod is already bound,
  // being bound or being deleted, was deleted meanwhile, or another pod has its name. UNAVAILABLE:
  // this replica is not the leader. Other errors come from the API server, with "unclear" if the
  // outcome is unknown.
  void Bind(const kube::PodObject& pod, const std::string& node, Done done);

  // Why no decision about the pod is allowed now; "" if it is allowed.
  std::string UnsettledReason(const Uid& uid) const;
  size_t pending_count() const { return pending_.size(); }
  // Pending bindings without a response: they may still take effect.
  size_t unanswered_count() const;

  // The feed has received a change of the pod.
  void OnPod(const kube::PodObject& pod);
  // The feed no longer has the pod. Cancels the pod's binding request, and answers its caller.
  void OnPodGone(const Uid& uid);
  // Reads pods whose binding is unclear or not shown by the feed. Call about once a second.
  void Tick();

 private:
  enum class State { kQueued, kSent, kUnclear, kBound };
  struct Pending {
    State state = State::kQueued;
    std::string ns, name, node;
    MonotonicTime sent_at{};
    MonotonicTime read_sent_at{};  // when the last read was sent
    MonotonicTime next_check;
    Done done;                  // null once the caller has the answer
    kube::Operation operation;  // cancels the request when the entry is erased
  };

  static bool HasAnswer(const Pending& pending) {
    return pending.state == State::kUnclear || pending.state == State::kBound;
  }
  Status BeforeSend(const Uid& uid);
  void OnAnswer(const Uid& uid, const Status& status);
  void Check(const Uid& uid, Pending& pending);
  void OnRead(const Uid& uid, const Result<kube::PodObject>& pod);
  void DropPending(const Uid& uid);

  ledger::ClusterLedger& ledger_;
  BindingApi& api_;
  const Clock& clock_;
  const MayWrite may_write_;
  std::map<Uid, Pending> pending_;
};

}  // namespace tessera::scheduler
