// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/kube_pods.h"

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
namespace {

constexpr Duration kLongestWait = std::chrono::minutes(2);

}  // namespace

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

struct KubePods::Impl final : kube::Informer<kube::PodObject>::Handler {
  Impl(net::IoThread* io, TaskRunner* runner, kube::Config config, std::string node_name,
       device::MemoryUnit gpu_mem_unit)
      : client(*io, *runner, std::move(config), kube::ClientOptionsFor(names::kAgent)),
        node(std::move(node_name)),
        unit(gpu_mem_unit),
        events(client, {.component = std::string(names::kAgent), .instance = node},
               [](const Status& status) {
                 Log(Severity::kWarning, "cannot record an Event about a pod",
                     {{"error", status.ToString()}});
               }),
        queue(*runner, {.max_running = 4, .longest_wait = kLongestWait},
              [this](const std::string& uid, kube::KeyedQueue::Done done) {
                Write(Uid(uid), std::move(done));
              }) {}

  void Start(Delegate* to) {
    delegate = to;
    kube::KeptFields kept = ledger::KeptPodFields();
    kept.container_status = true;
    kept.annotation = [read = kept.annotation](std::string_view key) {
      return key == names::kAnnotationConfigMirror || key == names::kAnnotationMemoryLimit ||
             key == names::kAnnotationComputeLimit || key == names::kAnnotationComputeClass ||
             read(key);
    };
    informer.emplace(client, kube::ListQuery{.field_selector = "spec.nodeName=" + node}, kept,
                     *this);
  }

  void OnAdded(const kube::PodObject& pod) override { Set(pod); }
  void OnChanged(const kube::PodObject&, const kube::PodObject& pod) override { Set(pod); }
  void OnRemoved(const kube::PodObject& last) override {
    const Uid uid = NodeUidOf(last.meta);
    const auto api_uid = api_uids.find(uid);
    // The kubelet has created a new mirror pod of the static pod before the old mirror pod was
    // gone.
    if (api_uid == api_uids.end() || api_uid->second != last.meta.uid) return;
    api_uids.erase(api_uid);
    pods.erase(uid);
    pending.erase(uid);
    delegate->OnPod(uid);
  }
  void OnSynced() override {
    synced = true;
    problem = Status::Ok();
    // RememberedPods annotates pods before they are listed. A pod that is not listed is gone.
    std::erase_if(pending, [this](const auto& entry) { return !pods.contains(entry.first); });
    for (const auto& [uid, annotations] : pending) queue.Add(uid.str());
    delegate->OnPodsSynced();
  }
  void OnError(const Status& status, Duration retry_in) override {
    if (problem.ok()) {
      Log(Severity::kWarning, "cannot watch the pods of this node, retrying",
          {{"error", status.ToString()},
           {"in_s", std::chrono::duration_cast<std::chrono::seconds>(retry_in).count()}});
    }
    problem = status;
  }

  void Set(const kube::PodObject& pod) {
    problem = Status::Ok();
    const Uid uid = NodeUidOf(pod.meta);
    const auto existing = pods.find(uid);
    if (existing != pods.end() &&
        (existing->second->ns != pod.meta.ns || existing->second->name != pod.meta.name)) {
      Log(Severity::kWarning, "two pods claim to be one static pod: the second is ignored",
          {{"pod", existing->second->Text()}, {"second", pod.meta.ns + "/" + pod.meta.name}});
      return;
    }
    api_uids[uid] = pod.meta.uid;
    pods.insert_or_assign(uid, PodInfoOf(pod, unit));
    delegate->OnPod(uid);
  }

  // The merge patch contains the UID, so the API server rejects it for another pod of that name.
  void Write(const Uid& uid, kube::KeyedQueue::Done done) {
    const auto pod = pods.find(uid);
    const auto annotations_to_write = pending.find(uid);
    if (pod == pods.end() || annotations_to_write == pending.end()) return done(Status::Ok());
    const Json patch = Json::MakeObject(
        {{"metadata",
          Json::MakeObject({{"uid", Json::String(api_uids.at(uid).str())},
                            {"annotations", Json::StringObject(annotations_to_write->second)}})}});
    operations[uid] = client.Patch(
        kube::Pod(pod->second->ns, pod->second->name), kube::PatchKind::kMerge, patch,
        {.field_manager = std::string(names::kAgent)},
        [this, uid, sent = annotations_to_write->second,
         done = std::move(done)](const Result<Json>& answer) {
          OnWritten(uid, sent, answer.status());
          done(answer.status().code() == Code::kNotFound ? Status::Ok() : answer.status());
        });
  }

  void OnWritten(const Uid& uid, const StringMap& sent, const Status& status) {
    operations.erase(uid);
    const auto annotations_to_write = pending.find(uid);
    if (status.ok() && annotations_to_write != pending.end()) {
      for (const auto& [key, value] : sent) {
        const auto entry = annotations_to_write->second.find(key);
        if (entry != annotations_to_write->second.end() && entry->second == value) {
          annotations_to_write->second.erase(entry);
        }
      }
      if (annotations_to_write->second.empty()) pending.erase(annotations_to_write);
    }
    if (!status.ok() && status.code() != Code::kNotFound) {
      Log(Severity::kWarning, "cannot annotate a pod with its GPUs, retrying",
          {{"uid", uid}, {"error", status.ToString()}});
    }
  }

  kube::Client client;
  const std::string node;
  const device::MemoryUnit unit;
  Delegate* delegate = nullptr;
  Map pods;
  std::map<Uid, Uid> api_uids;  // by the UID on the node
  bool synced = false;
  Status problem =
      Status(Code::kUnavailable, "the API server has not listed the pods of this node yet");
  std::map<Uid, StringMap> pending;  // annotations that are not written yet, by pod
  // Running patches, by pod. The answer to a patch removes its entry, also after the pod is gone.
  std::map<Uid, kube::Operation> operations;
  kube::EventRecorder events;
  kube::KeyedQueue queue;
  std::optional<kube::Informer<kube::PodObject>> informer;
};

KubePods::KubePods(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KubePods::~KubePods() = default;

Result<std::unique_ptr<KubePods>> KubePods::Make(net::IoThread* io, TaskRunner* runner,
                                                 const std::string& kubeconfig,
                                                 const std::string& node_name,
                                                 device::MemoryUnit gpu_mem_unit) {
  ASSIGN_OR_RETURN(kube::Config config, kube::FindConfig(kubeconfig));
  return std::unique_ptr<KubePods>(
      new KubePods(std::make_unique<Impl>(io, runner, std::move(config), node_name, gpu_mem_unit)));
}

void KubePods::Start(Delegate* delegate) { impl_->Start(delegate); }
const Pods::Map& KubePods::pods() const { return impl_->pods; }
bool KubePods::synced() const { return impl_->synced; }
Status KubePods::last_error() const { return impl_->problem; }

void KubePods::Annotate(const PodInfo& pod, const StringMap& annotations) {
  // A pod that is unknown after the first list is gone.
  if (impl_->synced && !impl_->pods.contains(pod.uid)) return;
  StringMap& pending = impl_->pending[pod.uid];
  for (const auto& [key, value] : annotations) pending[key] = value;
  impl_->queue.Add(pod.uid.str());
}

void KubePods::Record(const PodInfo& pod, const PodEvent& event) {
  const auto uid = impl_->api_uids.find(pod.uid);
  impl_->events.Record({.kind = "Pod",
                        .ns = pod.ns,
                        .name = pod.name,
                        .uid = uid != impl_->api_uids.end() ? uid->second : pod.uid},
                       event.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal,
                       event.reason, event.message);
}

}  // namespace tessera::agent
