// SPDX-License-Identifier: Apache-2.0
#include "src/console/pod_run.h"

#include <algorithm>
#include <utility>

#include "src/formats/json.h"
#include "src/formats/text_edit.h"
#include "src/ledger/pod_request.h"

namespace tessera::console {
namespace {

// Selects pods that have ended by excluding all other phases: a field selector has no "or".
constexpr const char* kEndedPods =
    "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";

void AddText(Json* out, std::string_view key, const std::string& text) {
  if (!text.empty()) out->Set(key, Json::String(text));
}

void AddExit(const Json& terminated, Json* out) {
  AddText(out, "reason", terminated.StringAt("reason").value_or(""));
  AddText(out, "message", terminated.StringAt("message").value_or(""));
  if (const auto code = terminated.IntAt("exitCode"); code.ok()) out->Set("exit", Json::Int(*code));
}

// `last` in the result: how the container ended before its last restart.
Json ContainerRun(const Json& status, bool init) {
  Json out = Json::MakeObject({{"name", Json::String(status.StringAt("name").value_or(""))},
                               {"ready", Json::Bool(status.BoolAt("ready").value_or(false))},
                               {"restarts", Json::Int(status.IntAt("restartCount").value_or(0))}});
  if (init) out.Set("init", Json::Bool(true));
  if (const Json* waiting = FindPath(status, {"state", "waiting"})) {
    out.Set("state", Json::String("waiting"));
    AddText(&out, "reason", waiting->StringAt("reason").value_or(""));
    AddText(&out, "message", waiting->StringAt("message").value_or(""));
  } else if (const Json* terminated = FindPath(status, {"state", "terminated"})) {
    out.Set("state", Json::String("terminated"));
    AddExit(*terminated, &out);
  } else if (FindPath(status, {"state", "running"}) != nullptr) {
    out.Set("state", Json::String("running"));
  }
  if (const Json* before = FindPath(status, {"lastState", "terminated"})) {
    Json last = Json::MakeObject();
    AddExit(*before, &last);
    out.Set("last", std::move(last));
  }
  return out;
}

// When the Event was last seen. Components set different fields.
std::string TimeOf(const Json& event) {
  for (const KeyPath& path : {KeyPath{"series", "lastObservedTime"}, KeyPath{"lastTimestamp"},
                              KeyPath{"eventTime"}, KeyPath{"metadata", "creationTimestamp"}}) {
    if (std::string time = TextAt(event, path); !time.empty()) return time;
  }
  return "";
}

Json EventJson(const Json& event) {
  const Json* series = FindPath(event, {"series", "count"});
  const int64_t count =
      series == nullptr ? event.IntAt("count").value_or(1) : series->ToInt().value_or(1);
  return Json::MakeObject({{"type", Json::String(event.StringAt("type").value_or(""))},
                           {"reason", Json::String(event.StringAt("reason").value_or(""))},
                           {"message", Json::String(event.StringAt("message").value_or(""))},
                           {"about", Json::String(TextAt(event, {"involvedObject", "name"}))},
                           {"count", Json::Int(count)},
                           {"time", Json::String(TimeOf(event))}});
}

}  // namespace

Json RunOf(const Json& pod) {
  Json containers = Json::MakeArray();
  int64_t restarts = 0;
  for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& status : ItemsAt(pod, {"status", kind})) {
      containers.Append(ContainerRun(status, kind == std::string_view("initContainerStatuses")));
      restarts += status.IntAt("restartCount").value_or(0);
    }
  }
  const bool deleting = FindPath(pod, {"metadata", "deletionTimestamp"}) != nullptr;
  Json out =
      Json::MakeObject({{"namespace", Json::String(TextAt(pod, {"metadata", "namespace"}))},
                        {"name", Json::String(TextAt(pod, {"metadata", "name"}))},
                        {"phase", Json::String(TextAt(pod, {"status", "phase"}))},
                        {"node", Json::String(TextAt(pod, {"spec", "nodeName"}))},
                        {"deleting", Json::Bool(deleting)},
                        {"restarts", Json::Int(restarts)},
                        {"created", Json::String(TextAt(pod, {"metadata", "creationTimestamp"}))},
                        {"containers", std::move(containers)}});
  AddText(&out, "reason", TextAt(pod, {"status", "reason"}));
  AddText(&out, "message", TextAt(pod, {"status", "message"}));
  return out;
}

Json EventsOf(const std::vector<Json>& events, std::string_view prefix) {
  std::vector<const Json*> sorted;
  for (const Json& event : events) {
    const std::string name = TextAt(event, {"involvedObject", "name"});
    // "web-" means ReplicaSets of "web", and not those of "web-api".
    const bool is_other =
        prefix.ends_with('-') && name.find('-', prefix.size()) != std::string::npos;
    if (name.starts_with(prefix) && !is_other) sorted.push_back(&event);
  }
  // RFC 3339 times in UTC sort correctly as texts.
  std::ranges::stable_sort(sorted,
                           [](const Json* a, const Json* b) { return TimeOf(*a) > TimeOf(*b); });
  if (sorted.size() > kMaxEvents) sorted.resize(kMaxEvents);
  Json out = Json::MakeArray();
  for (const Json* event : sorted) out.Append(EventJson(*event));
  return out;
}

RunReader::RunReader(std::shared_ptr<WebSession> session, Target target, Done done)
    : session_(std::move(session)), target_(std::move(target)), done_(std::move(done)) {
  kube::ListQuery query{.type = kube::kPods, .ns = target_.ns, .limit = kMaxPods};
  if (target_.pod.empty()) {
    query.label_selector = target_.selector;
  } else {
    query.field_selector = "metadata.name=" + target_.pod;
  }
  operations_.push_back(
      session_->client->List(query, [this](const Result<kube::ListPage>& page) { OnPods(page); }));
}

void RunReader::OnPods(const Result<kube::ListPage>& page) {
  if (!page.ok()) return std::exchange(done_, nullptr)(page.status());
  Json pods = Json::MakeArray();
  for (const kube::RawObject& raw : page->items) pods.Append(RunOf(*raw.json()));
  answer_.Set("pods", std::move(pods));
  ReadEvents("");
}

void RunReader::ReadEvents(const std::string& continue_token) {
  // A Deployment's ReplicaSets create its pods. Their Events say why a pod cannot be created.
  const std::string about = target_.pod.empty()
                                ? "involvedObject.kind=ReplicaSet"
                                : "involvedObject.kind=Pod,involvedObject.name=" + target_.pod;
  operations_.push_back(
      session_->client->List({.type = kube::kEvents,
                              .ns = target_.ns,
                              .field_selector = about,
                              .continue_token = continue_token},
                             [this](const Result<kube::ListPage>& page) { OnEvents(page); }));
}

void RunReader::OnEvents(const Result<kube::ListPage>& page) {
  if (page.status().code() == Code::kPermissionDenied) {
    answer_.Set("eventsDenied", Json::Bool(true));
    return std::exchange(done_, nullptr)(std::move(answer_));
  }
  if (!page.ok()) return std::exchange(done_, nullptr)(page.status());
  for (const kube::RawObject& raw : page->items) events_.push_back(*raw.json());
  if (!page->continue_token.empty() && ++event_pages_ < kMaxEventPages) {
    return ReadEvents(page->continue_token);
  }
  answer_.Set("events",
              EventsOf(events_, target_.pod.empty() ? target_.deployment + "-" : target_.pod));
  std::exchange(done_, nullptr)(std::move(answer_));
}

EndedPodReader::EndedPodReader(std::shared_ptr<WebSession> session, Done done)
    : session_(std::move(session)), done_(std::move(done)) {
  const Rights& rights = session_->rights;
  namespaces_ = {rights.namespaces.begin(), rights.namespaces.end()};
  if (rights.all_pods) namespaces_ = {""};
  ReadNext();
}

void EndedPodReader::ReadNext() {
  operations_.push_back(
      session_->client->List({.type = kube::kPods,
                              .ns = namespaces_.back(),
                              .field_selector = kEndedPods,
                              .continue_token = continue_token_},
                             [this](const Result<kube::ListPage>& page) { OnPods(page); }));
}

void EndedPodReader::OnPods(const Result<kube::ListPage>& page) {
  if (!page.ok()) return std::exchange(done_, nullptr)(page.status());
  for (const kube::RawObject& raw : page->items) {
    if (ledger::RequestsGpus(*raw.json())) pods_.Append(RunOf(*raw.json()));
  }
  continue_token_ = page->continue_token;
  if (continue_token_.empty()) namespaces_.pop_back();
  const bool full = ++pages_ >= kMaxPages || pods_.items().size() >= kMaxPods;
  if (namespaces_.empty() || full) {
    return std::exchange(done_, nullptr)(Json::MakeObject(
        {{"pods", std::move(pods_)}, {"complete", Json::Bool(namespaces_.empty())}}));
  }
  ReadNext();
}

}  // namespace tessera::console
