// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/kube_pods.h"

#include <map>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/kube/client.h"
#include "src/kube/events.h"
#include "src/kube/informer.h"
#include "src/kube/keyed_queue.h"
#include "src/kube/objects.h"
#include "src/ledger/pod_request.h"

namespace tessera::agent {

Uid NodeUidOf(const kube::ObjectMeta& pod) {
  const auto mirror = pod.annotations.find(names::kAnnotationConfigMirror);
  // The kubelet's UID of a static pod is an MD5 in hex (pkg/kubelet/config/common.go), and the
  // annotation of its mirror has the same text (pkg/kubelet/pod/mirror_client.go). UIDs of the API
  // server are longer, so a user's annotation cannot claim the UID of another pod.
  constexpr size_t kHashLength = 32;
  const bool is_hash = mirror != pod.annotations.end() && mirror->second.size() == kHashLength &&
                       mirror->second.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_hash ? Uid(mirror->second) : pod.uid;
}

std::shared_ptr<const PodInfo> PodInfoOf(const kube::PodObject& pod, device::MemoryUnit unit) {
  Result<ledger::PodRequest> request = ledger::PodRequestOf(pod, {.gpu_mem_unit = unit});
  return std::make_shared<const PodInfo>(PodInfo{
      .uid = NodeUidOf(pod.meta),
      .ns = pod.meta.ns,
      .name = pod.meta.name,
      .request = request.ok() ? Result<device::DeviceRequest>(*request->devices) : request.status(),
      .annotations = pod.meta.annotations,
      .ended = pod.ended(),
      .container_ids = pod.container_ids,
      .ended_containers = pod.ended_containers,
      .created = pod.meta.created});
}

namespace {

constexpr Duration kLongestWait = std::chrono::minutes(2);

class KubePods final : public Pods, public kube::Informer<kube::PodObject>::Handler {
 public:
  KubePods(net::IoThread* io, TaskRunner* runner, kube::Config config, std::string node_name,
           device::MemoryUnit gpu_mem_unit)
      : client_(*io, *runner, std::move(config), kube::ClientOptionsFor(names::kAgent)),
        node_(std::move(node_name)),
        unit_(gpu_mem_unit),
        events_(client_, {.component = std::string(names::kAgent), .instance = node_},
                [](const Status& status) {
                  Log(Severity::kWarning, "cannot record an Event about a pod",
                      {{"error", status.ToString()}});
                }),
        queue_(*runner, {.max_running = 4, .longest_wait = kLongestWait},
               [this](const std::string& uid, kube::KeyedQueue::Done done) {
                 Write(Uid(uid), std::move(done));
               }) {}

  void Start(Delegate* delegate) override {
    delegate_ = delegate;
    kube::KeptFields kept = ledger::KeptPodFields();
    kept.container_status = true;
    kept.annotation = [read = kept.annotation](std::string_view key) {
      return key == names::kAnnotationConfigMirror || key == names::kAnnotationMemoryLimit ||
             key == names::kAnnotationComputeLimit || key == names::kAnnotationComputeClass ||
             read(key);
    };
    informer_.emplace(client_, kube::ListQuery{.field_selector = "spec.nodeName=" + node_}, kept,
                      *this);
  }
  const Map& pods() const override { return pods_; }
  bool synced() const override { return synced_; }
  Status last_error() const override { return problem_; }

  void Annotate(const PodInfo& pod, const StringMap& annotations) override {
    // A pod that is unknown after the first list is gone.
    if (synced_ && !pods_.contains(pod.uid)) return;
    StringMap& pending = pending_[pod.uid];
    for (const auto& [key, value] : annotations) pending[key] = value;
    queue_.Add(pod.uid.str());
  }

  void Record(const PodInfo& pod, const PodEvent& event) override {
    const auto uid = api_uids_.find(pod.uid);
    events_.Record({.kind = "Pod",
                    .ns = pod.ns,
                    .name = pod.name,
                    .uid = uid != api_uids_.end() ? uid->second : pod.uid},
                   event.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal,
                   event.reason, event.message);
  }

 private:
  void OnAdded(const kube::PodObject& pod) override { Set(pod); }
  void OnChanged(const kube::PodObject&, const kube::PodObject& pod) override { Set(pod); }
  void OnRemoved(const kube::PodObject& last) override {
    const Uid uid = NodeUidOf(last.meta);
    const auto api_uid = api_uids_.find(uid);
    // The kubelet has created a new mirror pod of the static pod before the old mirror pod was
    // gone.
    if (api_uid == api_uids_.end() || api_uid->second != last.meta.uid) return;
    api_uids_.erase(api_uid);
    pods_.erase(uid);
    pending_.erase(uid);
    delegate_->OnPod(uid);
  }
  void OnSynced() override {
    synced_ = true;
    problem_ = Status::Ok();
    // RememberedPods annotates pods before they are listed. A pod that is not listed is gone.
    std::erase_if(pending_, [this](const auto& entry) { return !pods_.contains(entry.first); });
    for (const auto& [uid, annotations] : pending_) queue_.Add(uid.str());
    delegate_->OnPodsSynced();
  }
  void OnError(const Status& status, Duration retry_in) override {
    if (problem_.ok()) {
      Log(Severity::kWarning, "cannot watch the pods of this node, retrying",
          {{"error", status.ToString()},
           {"in_s", std::chrono::duration_cast<std::chrono::seconds>(retry_in).count()}});
    }
    problem_ = status;
  }

  void Set(const kube::PodObject& pod) {
    problem_ = Status::Ok();
    const Uid uid = NodeUidOf(pod.meta);
    const auto existing = pods_.find(uid);
    if (existing != pods_.end() &&
        (existing->second->ns != pod.meta.ns || existing->second->name != pod.meta.name)) {
      Log(Severity::kWarning, "two pods claim to be one static pod: the second is ignored",
          {{"pod", existing->second->Text()}, {"second", pod.meta.ns + "/" + pod.meta.name}});
      return;
    }
    api_uids_[uid] = pod.meta.uid;
    pods_.insert_or_assign(uid, PodInfoOf(pod, unit_));
    delegate_->OnPod(uid);
  }

  // The merge patch contains the UID, so the API server rejects it for another pod of that name.
  void Write(const Uid& uid, kube::KeyedQueue::Done done) {
    const auto pod = pods_.find(uid);
    const auto annotations_to_write = pending_.find(uid);
    if (pod == pods_.end() || annotations_to_write == pending_.end()) return done(Status::Ok());
    const Json patch = Json::MakeObject(
        {{"metadata",
          Json::MakeObject({{"uid", Json::String(api_uids_.at(uid).str())},
                            {"annotations", Json::StringObject(annotations_to_write->second)}})}});
    operations_[uid] = client_.Patch(
        kube::Pod(pod->second->ns, pod->second->name), kube::PatchKind::kMerge, patch,
        {.field_manager = std::string(names::kAgent)},
        [this, uid, sent = annotations_to_write->second,
         done = std::move(done)](const Result<Json>& answer) {
          OnWritten(uid, sent, answer.status());
          done(answer.status().code() == Code::kNotFound ? Status::Ok() : answer.status());
        });
  }

  void OnWritten(const Uid& uid, const StringMap& sent, const Status& status) {
    operations_.erase(uid);
    const auto annotations_to_write = pending_.find(uid);
    if (status.ok() && annotations_to_write != pending_.end()) {
      for (const auto& [key, value] : sent) {
        const auto entry = annotations_to_write->second.find(key);
        if (entry != annotations_to_write->second.end() && entry->second == value) {
          annotations_to_write->second.erase(entry);
        }
      }
      if (annotations_to_write->second.empty()) pending_.erase(annotations_to_write);
    }
    if (!status.ok() && status.code() != Code::kNotFound) {
      Log(Severity::kWarning, "cannot annotate a pod with its GPUs, retrying",
          {{"uid", uid}, {"error", status.ToString()}});
    }
  }

  kube::Client client_;
  const std::string node_;
  const device::MemoryUnit unit_;
  Delegate* delegate_ = nullptr;
  Map pods_;
  std::map<Uid, Uid> api_uids_;  // by the UID on the node
  bool synced_ = false;
  Status problem_ =
      Status(Code::kUnavailable, "the API server has not listed the pods of this node yet");
  std::map<Uid, StringMap> pending_;  // annotations that are not written yet, by pod
  // Running patches, by pod. The answer to a patch removes its entry, also after the pod is gone.
  std::map<Uid, kube::Operation> operations_;
  kube::EventRecorder events_;
  kube::KeyedQueue queue_;
  std::optional<kube::Informer<kube::PodObject>> informer_;
};

}  // namespace

Result<std::unique_ptr<Pods>> ConnectPods(net::IoThread* io, TaskRunner* runner,
                                          const std::string& kubeconfig,
                                          const std::string& node_name,
                                          device::MemoryUnit gpu_mem_unit) {
  ASSIGN_OR_RETURN(kube::Config config, kube::FindConfig(kubeconfig));
  return std::unique_ptr<Pods>(
      std::make_unique<KubePods>(io, runner, std::move(config), node_name, gpu_mem_unit));
}

}  // namespace tessera::agent
