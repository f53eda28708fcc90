// SPDX-License-Identifier: Apache-2.0
#include "src/console/drain.h"

#include <algorithm>
#include <utility>

#include "api/names.h"

namespace tessera::console {
namespace {

// The controller of the pod, such as "ReplicaSet/web-5d4"; "" if the pod has none.
std::string OwnerOf(const Json& pod) {
  for (const Json& owner : ItemsAt(pod, {"metadata", "ownerReferences"})) {
    if (!owner.BoolAt("controller").value_or(false)) continue;
    return owner.StringAt("kind").value_or("") + "/" + owner.StringAt("name").value_or("");
  }
  return "";
}

bool HasLocalData(const Json& pod) {
  return std::ranges::any_of(ItemsAt(pod, {"spec", "volumes"}),
                             [](const Json& volume) { return volume.Find("emptyDir") != nullptr; });
}

}  // namespace

std::string_view ReasonToStay(const Json& pod, bool force) {
  const std::string phase = TextAt(pod, {"status", "phase"});
  if (phase == "Succeeded" || phase == "Failed") return "ended";
  if (FindPath(pod, {"metadata", "annotations", names::kAnnotationConfigMirror})) {
    return "static";
  }
  const std::string owner = OwnerOf(pod);
  if (owner.starts_with("DaemonSet/")) return "daemonset";
  if (!force && owner.empty()) return "unmanaged";
  if (!force && HasLocalData(pod)) return "local-data";
  return "";
}

Drain::Drain(std::shared_ptr<WebSession> session, DrainOptions options, Done done)
    : session_(std::move(session)), options_(std::move(options)), done_(std::move(done)) {
  if (options_.dry_run) {
    List("");
  } else {
    Cordon();
  }
}

void Drain::Cordon() {
  const Json patch =
      Json::MakeObject({{"spec", Json::MakeObject({{"unschedulable", Json::Bool(true)}})}});
  cordon_ =
      session_->client->Patch(kube::Node(options_.node), kube::PatchKind::kMerge, patch, {},
                              [this](const Result<Json>& node) {
                                if (!node.ok())
                                  return Finish(node.status().Annotate("cannot cordon the node"));
                                List("");
                              });
}

void Drain::List(std::string continue_token) {
  lists_.push_back(
      session_->client->List({.type = kube::kPods,
                              .field_selector = "spec.nodeName=" + options_.node,
                              .continue_token = std::move(continue_token)},
                             [this](const Result<kube::ListPage>& page) { OnList(page); }));
}

void Drain::OnList(const Result<kube::ListPage>& page) {
  if (!page.ok()) return Finish(page.status().Annotate("cannot list the pods of the node"));
  for (const kube::RawObject& raw : page->items) AddPod(*raw.json());
  if (pods_.size() > kMaxPods) {
    return Finish(Error(Code::kResourceExhausted, "the node has more than {} pods", kMaxPods));
  }
  if (!page->continue_token.empty()) return List(page->continue_token);
  EvictNext();
}

void Drain::AddPod(const Json& pod) {
  const Json* meta = pod.Find("metadata");
  if (meta == nullptr) return;
  const std::string_view why = ReasonToStay(pod, options_.force);
  pods_.push_back({.ns = meta->StringAt("namespace").value_or(""),
                   .name = meta->StringAt("name").value_or(""),
                   .owner = OwnerOf(pod),
                   .result = why.empty() ? "" : "stays",
                   .why = std::string(why)});
  if (why.empty()) to_evict_.push_back(&pods_.back());
}

void Drain::EvictNext() {
  while (!to_evict_.empty() && in_flight_ < kMaxParallelEvictions) {
    DrainedPod& pod = *to_evict_.front();
    to_evict_.pop_front();
    ++in_flight_;
    evictions_.push_back(session_->client->Evict(
        pod.ns, pod.name, {.dry_run = options_.dry_run},
        [this, &pod](const Result<Json>& answer) { OnEvicted(pod, answer); }));
  }
  if (in_flight_ == 0) Finish(ResultJson());
}

void Drain::OnEvicted(DrainedPod& pod, const Result<Json>& answer) {
  --in_flight_;
  const Code code = answer.status().code();
  // A pod that is gone need not be evicted.
  pod.result = answer.ok() || code == Code::kNotFound ? "evicted"
               : code == Code::kResourceExhausted     ? "refused"
                                                      : "failed";
  if (pod.result != "evicted") pod.why = answer.status().message();
  EvictNext();
}

void Drain::Finish(Result<Json> answer) {
  if (done_) std::exchange(done_, nullptr)(std::move(answer));
}

Json Drain::ResultJson() const {
  Json pods = Json::MakeArray();
  for (const DrainedPod& pod : pods_) {
    Json json = Json::MakeObject({{"namespace", Json::String(pod.ns)},
                                  {"name", Json::String(pod.name)},
                                  {"owner", Json::String(pod.owner)},
                                  {"result", Json::String(pod.result)}});
    if (!pod.why.empty()) json.Set("why", Json::String(pod.why));
    pods.Append(std::move(json));
  }
  return Json::MakeObject({{"pods", std::move(pods)}});
}

}  // namespace tessera::console
