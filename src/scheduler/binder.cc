// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/binder.h"
#include "src/ledger/pod_request.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera::scheduler {
namespace {

// The assumption does not expire: the binder ends it when the outcome of the binding is known.
constexpr Duration kForever = std::chrono::hours(24 * 365);
// How long after it was sent a binding without a response may still take effect. The API server
// cancels a request after a minute, and does not start a request whose client has disconnected.
constexpr Duration kUnclearLimit = std::chrono::seconds(15);
// Time between two reads of a pod whose binding is unclear.
constexpr Duration kReadInterval = std::chrono::seconds(2);
// A bound pod that the feed has not shown for this long is read from the API server.
constexpr Duration kUnseenLimit = std::chrono::seconds(30);

// Codes after which the pod may still be bound. The API server may also fail (HTTP 500) after etcd
// has stored the binding.
bool IsUnclear(Code code) {
  switch (code) {
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kInternal:
    case Code::kUnknown:
    case Code::kCancelled:
      return true;
    default:
      return false;
  }
}

}  // namespace

Binder::Binder(ledger::ClusterLedger& ledger, BindingApi& api, const Clock& clock,
               MayWrite may_write)
    : ledger_(ledger), api_(api), clock_(clock), may_write_(std::move(may_write)) {}
Binder::~Binder() = default;

void Binder::Bind(const kube::PodObject& pod, const std::string& node, Done done) {
  const Uid& uid = pod.meta.uid;
  const std::string who = "pod " + pod.meta.ns + "/" + pod.meta.name;
  if (const std::string why = UnsettledReason(uid); !why.empty()) {
    return done(Status(Code::kAborted, who + " " + why));
  }
  if (!pod.node_name.empty()) {
    return done(Error(Code::kAborted, "{} is already bound to node {}", who, pod.node_name));
  }
  if (pod.meta.deleting) return done(Error(Code::kAborted, "{} is being deleted", who));
  Result<ledger::ClusterLedger::Query> query = ledger_.MakeQuery(pod);
  if (!query.ok()) return done(query.status().Annotate(who));
  const auto assumed = ledger_.Assume(*query, node, kForever);
  if (!assumed.ok()) return done(assumed.status().Annotate(who));
  if (!may_write_()) {
    ledger_.DropAssumption(uid);
    return done(Error(Code::kUnavailable, "this replica no longer leads"));
  }
  Pending& pending = pending_[uid];
  pending.ns = pod.meta.ns;
  pending.name = pod.meta.name;
  pending.node = node;
  pending.done = std::move(done);
  pending.operation = api_.Bind(
      {.ns = pod.meta.ns,
       .pod = pod.meta.name,
       .uid = uid,
       .node = node,
       .annotations = assumed->annotations},
      [this, uid] { return BeforeSend(uid); },
      [this, uid](const Status& status) { OnAnswer(uid, status); });
}

Status Binder::BeforeSend(const Uid& uid) {
  if (!may_write_()) return Error(Code::kUnavailable, "this replica no longer leads");
  Pending& pending = pending_.at(uid);
  pending.state = State::kSent;
  pending.sent_at = clock_.Now();
  return Status::Ok();
}

void Binder::OnAnswer(const Uid& uid, const Status& status) {
  const Uid id = uid;  // DropPending destroys the operation, which owns `uid`
  Pending& pending = pending_.at(id);
  const Done done = std::exchange(pending.done, nullptr);
  if (status.ok()) {
    pending.state = State::kBound;
    pending.next_check = clock_.Now() + kUnseenLimit;
  } else if (pending.state != State::kQueued && IsUnclear(status.code())) {
    pending.state = State::kUnclear;
    pending.next_check = clock_.Now() + kReadInterval;
    return done(status.Annotate("it is unclear whether the pod is bound"));
  } else {
    DropPending(id);
  }
  done(status);
}

void Binder::OnPodGone(const Uid& uid) {
  const auto gone = pending_.extract(uid);
  if (!gone || !gone.mapped().done) return;
  gone.mapped().done(Error(Code::kAborted, "pod {}/{} was deleted while it was being bound",
                           gone.mapped().ns, gone.mapped().name));
}

void Binder::DropPending(const Uid& uid) {
  pending_.erase(uid);
  ledger_.DropAssumption(uid);
}

size_t Binder::unanswered_count() const {
  return static_cast<size_t>(std::count_if(pending_.begin(), pending_.end(), [](const auto& entry) {
    return entry.second.state != State::kBound;
  }));
}

std::string Binder::UnsettledReason(const Uid& uid) const {
  const auto found = pending_.find(uid);
  if (found == pending_.end()) return "";
  const Pending& pending = found->second;
  switch (pending.state) {
    case State::kQueued:
    case State::kSent:
      return "is being bound to node " + pending.node;
    case State::kUnclear:
      return "may be bound to node " + pending.node + ": the API server has not confirmed it yet";
    case State::kBound:
      return "is already bound to node " + pending.node;
  }
  return "";
}

void Binder::OnPod(const kube::PodObject& pod) {
  if (pod.node_name.empty()) return;
  const auto found = pending_.find(pod.meta.uid);
  // An entry without an answer stays, because the caller must still be answered.
  if (found != pending_.end() && HasAnswer(found->second)) pending_.erase(found);
}

void Binder::Tick() {
  const MonotonicTime now = clock_.Now();
  for (auto& [uid, pending] : pending_) {
    if (HasAnswer(pending) && pending.next_check <= now) Check(uid, pending);
  }
}

void Binder::Check(const Uid& uid, Pending& pending) {
  pending.read_sent_at = clock_.Now();
  pending.next_check = pending.read_sent_at + kReadInterval;
  pending.operation =
      api_.Read(pending.ns, pending.name,
                [this, uid](const Result<kube::PodObject>& pod) { OnRead(Uid(uid), pod); });
}

void Binder::OnRead(const Uid& uid, const Result<kube::PodObject>& pod) {
  const auto found = pending_.find(uid);
  if (found == pending_.end()) return;
  Pending& pending = found->second;
  if (!pod.ok()) {
    // Other errors do not show the state of the pod.
    if (pod.status().code() == Code::kNotFound) DropPending(uid);
    return;
  }
  if (pod->meta.uid != uid || pod->ended()) return DropPending(uid);
  if (!pod->node_name.empty()) {
    // Another component bound the pod to another node.
    if (pod->node_name != pending.node) return DropPending(uid);
    // Only the feed adds the pod to the ledger. If the binder added a pod that disappears before
    // the feed shows it, nothing would ever remove that pod.
    pending.state = State::kBound;
    pending.next_check = clock_.Now() + kUnseenLimit;
    return;
  }
  // Compares with the time when the read was sent, not with now: if this process was suspended
  // meanwhile, the binding may have taken effect after the API server answered the read.
  if (pending.read_sent_at - pending.sent_at >= kUnclearLimit) DropPending(uid);
}

kube::Operation KubeBindingApi::Bind(const kube::PodBinding& binding, kube::BeforeSend before_send,
                                     std::function<void(const Status&)> on_done) {
  return kube::BindPod(client_, binding, std::move(on_done), std::move(before_send));
}

kube::Operation KubeBindingApi::Read(const std::string& ns, const std::string& name,
                                     std::function<void(const Result<kube::PodObject>&)> on_done) {
  return client_.Get(kube::Pod(ns, name), [on_done = std::move(on_done)](Result<Json> json) {
    if (!json.ok()) return on_done(json.status());
    on_done(
        kube::Decode<kube::PodObject>(kube::RawObject(*std::move(json)), ledger::KeptPodFields()));
  });
}

}  // namespace tessera::scheduler
