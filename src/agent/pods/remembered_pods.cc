// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/remembered_pods.h"

#include <chrono>
#include <utility>

#include "src/base/log.h"
#include "src/formats/json.h"

namespace tessera::agent {
namespace {

// Rewriting the journal waits for the disk, and containers that start meanwhile wait too. The
// journal is therefore rewritten only after some megabytes of obsolete records.
constexpr size_t kMaxObsoleteRecords = 4096;

bool ShouldRemember(const PodInfo& pod) {
  return !pod.ended && pod.request.ok() && pod.request->requests_devices();
}

Json EncodeContainer(const device::ContainerRequest& container) {
  Json json = Json::MakeObject();
  json.Set("name", Json::String(container.name));
  json.Set("phase", Json::String(device::NameOf(container.phase)));
  if (container.count == 0) return json;
  json.Set("dialect", Json::String(device::NameOf(container.dialect)));
  json.Set("count", Json::Int(container.count));
  json.Set("milli", Json::Int(container.per_gpu.compute.count()));
  json.Set("bytes", Json::Int(container.per_gpu.memory.count()));
  json.Set("exclusive", Json::Bool(container.exclusive));
  if (!container.mig_profile.empty()) json.Set("mig", Json::String(container.mig_profile));
  return json;
}

device::ContainerRequest DecodeContainer(const Json& json) {
  device::ContainerRequest container{.name = json.StringAt("name").value_or("")};
  container.phase =
      device::PhaseFromName(json.StringAt("phase").value_or("")).value_or(device::Phase::kMain);
  container.count = static_cast<int>(json.IntAt("count").value_or(0));
  if (container.count == 0) return container;
  container.dialect = device::DialectFromName(json.StringAt("dialect").value_or(""))
                          .value_or(device::Dialect::kNvidiaGpu);
  container.per_gpu = {MilliGpu(json.IntAt("milli").value_or(0)),
                       Bytes(json.IntAt("bytes").value_or(0))};
  container.exclusive = json.BoolAt("exclusive").value_or(false);
  container.mig_profile = json.StringAt("mig").value_or("");
  return container;
}

// "policy" is left out, because the pod is already bound.
Json EncodeRequest(const device::DeviceRequest& request) {
  Json containers = Json::MakeArray();
  for (const auto& container : request.containers) containers.Append(EncodeContainer(container));
  Json json = Json::MakeObject({{"containers", std::move(containers)}});
  json.Set("one_gpu", Json::Bool(request.one_gpu));
  if (request.elastic_limit) json.Set("elastic", Json::Int(request.elastic_limit->count()));
  const auto list = [&](std::string_view key, const std::vector<std::string>& values) {
    if (!values.empty()) json.Set(key, Json::Strings(values));
  };
  list("models", request.constraints.models);
  list("uuids", request.constraints.uuids);
  list("excluded", request.constraints.excluded_uuids);
  return json;
}

std::vector<std::string> DecodeStrings(const Json& json, std::string_view key) {
  std::vector<std::string> values;
  for (const Json& item : ItemsAt(json, {key})) {
    if (item.is_string()) values.push_back(item.string_value());
  }
  return values;
}

std::optional<device::DeviceRequest> DecodeRequest(const Json& json) {
  const Json* containers = json.is_object() ? json.Find("containers") : nullptr;
  if (containers == nullptr || !containers->is_array()) return std::nullopt;
  device::DeviceRequest request;
  for (const Json& item : containers->items()) {
    if (!item.is_object()) return std::nullopt;
    request.containers.push_back(DecodeContainer(item));
  }
  request.one_gpu = json.BoolAt("one_gpu").value_or(false);
  if (const auto elastic = json.IntAt("elastic"); elastic.ok()) {
    request.elastic_limit = MilliGpu(*elastic);
  }
  request.constraints = {DecodeStrings(json, "models"), DecodeStrings(json, "uuids"),
                         DecodeStrings(json, "excluded")};
  return request;
}

std::string GoneRecord(const Uid& uid) {
  return Json::MakeObject({{"do", Json::String("gone")}, {"uid", Json::String(uid.str())}})
      .Serialize();
}

}  // namespace

std::string EncodePod(const PodInfo& pod) {
  const auto created =
      std::chrono::duration_cast<std::chrono::nanoseconds>(pod.created.time_since_epoch());
  return Json::MakeObject({{"do", Json::String("pod")},
                           {"uid", Json::String(pod.uid.str())},
                           {"namespace", Json::String(pod.ns)},
                           {"pod", Json::String(pod.name)},
                           {"created", Json::Int(created.count())},
                           {"annotations", Json::StringObject(pod.annotations)},
                           {"request", EncodeRequest(*pod.request)}})
      .Serialize();
}

std::shared_ptr<const PodInfo> DecodePod(const std::string& record) {
  const Result<Json> json = ParseJson(record);
  if (!json.ok() || !json->is_object() || json->StringAt("do").value_or("") != "pod") return {};
  const Json* request = json->Find("request");
  auto decoded = request != nullptr ? DecodeRequest(*request) : std::nullopt;
  const Uid uid(json->StringAt("uid").value_or(""));
  if (!decoded || uid.empty()) return {};
  PodInfo pod{.uid = uid,
              .ns = json->StringAt("namespace").value_or(""),
              .name = json->StringAt("pod").value_or(""),
              .request = *std::move(decoded)};
  pod.created = WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::nanoseconds(json->IntAt("created").value_or(0))));
  for (const auto& [key, value] : MembersAt(*json, {"annotations"})) {
    if (value.is_string()) pod.annotations[key] = value.string_value();
  }
  return std::make_shared<const PodInfo>(std::move(pod));
}

RememberedPods::RememberedPods(std::unique_ptr<Pods> pods, std::unique_ptr<grant::RecordLog> log,
                               const std::vector<std::string>& records)
    : pods_(std::move(pods)), log_(std::move(log)), record_count_(records.size()) {
  for (const std::string& record : records) {
    if (auto pod = DecodePod(record)) {
      record_hashes_[pod->uid] = std::hash<std::string>()(record);
      known_pods_[pod->uid] = std::move(pod);
      continue;
    }
    const Result<Json> json = ParseJson(record);
    if (!json.ok() || !json->is_object()) continue;
    const Uid uid(json->StringAt("uid").value_or(""));
    record_hashes_.erase(uid);
    known_pods_.erase(uid);
  }
}

void RememberedPods::Start(Pods::Delegate* delegate) {
  delegate_ = delegate;
  pods_->Start(this);
}

void RememberedPods::OnPod(const Uid& uid) {
  const auto found = pods_->pods().find(uid);
  if (found == pods_->pods().end()) {
    Forget(uid);
  } else {
    known_pods_[uid] = found->second;
    Remember(*found->second);
  }
  delegate_->OnPod(uid);
}

void RememberedPods::OnPodsSynced() {
  std::vector<Uid> gone;
  for (const auto& [uid, pod] : known_pods_) {
    if (!pods_->pods().contains(uid)) gone.push_back(uid);
  }
  for (const Uid& uid : gone) {
    Forget(uid);
    delegate_->OnPod(uid);
  }
  delegate_->OnPodsSynced();
}

void RememberedPods::Forget(const Uid& uid) {
  known_pods_.erase(uid);
  if (record_hashes_.erase(uid) > 0) Write(GoneRecord(uid));
}

void RememberedPods::Remember(const PodInfo& pod) {
  if (!ShouldRemember(pod)) {
    if (record_hashes_.erase(pod.uid) > 0) Write(GoneRecord(pod.uid));
    return;
  }
  const std::string record = EncodePod(pod);
  const size_t hash = std::hash<std::string>()(record);
  const auto [found, is_new] = record_hashes_.emplace(pod.uid, hash);
  if (!is_new && found->second == hash) return;
  found->second = hash;
  Write(record);
}

void RememberedPods::Write(const std::string& record) {
  Status status;
  if (must_rewrite_ || record_count_ > 4 * record_hashes_.size() + kMaxObsoleteRecords) {
    status = Rewrite();
  } else {
    status = log_->AppendUnsynced(record);
    if (status.ok()) ++record_count_;
  }
  if (!status.ok() && !must_rewrite_) {
    Log(Severity::kWarning,
        "cannot record the pods of this node: an agent that starts while the API server is "
        "unreachable will not know these pods",
        {{"error", status.ToString()}});
  }
  must_rewrite_ = !status.ok();
}

Status RememberedPods::Rewrite() {
  std::vector<std::string> all;
  for (const auto& [uid, hash] : record_hashes_) {
    const auto pod = known_pods_.find(uid);
    if (pod != known_pods_.end()) all.push_back(EncodePod(*pod->second));
  }
  RETURN_IF_ERROR(log_->Replace(all));
  record_count_ = all.size();
  return Status::Ok();
}

}  // namespace tessera::agent
