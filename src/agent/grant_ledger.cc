// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grant_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera::agent {
namespace {

constexpr std::string_view kBind = "bind";
constexpr std::string_view kSpent = "spent";
// Rewriting costs a file of all entries; not worth it for less history than this.
constexpr size_t kMinHistory = 256;

// FNV-1a. Guards nothing by itself: a token is shown only with its seal, and a stranger would have
// to choose the UID of its pod, which the API server does.
uint64_t Fingerprint(const ContainerRef& who) {
  uint64_t hash = 14695981039346656037u;
  for (const std::string* text : {&who.pod_uid, &who.container}) {
    for (const char c : *text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
    hash = (hash ^ 0xff) * 1099511628211u;
  }
  return hash;
}

bool SameContainer(const ContainerRef& a, const ContainerRef& b) {
  return a.pod_uid == b.pod_uid && a.container == b.container;
}

bool Shares(const std::vector<std::string>& ids, const std::vector<std::string>& others,
            std::string* which) {
  for (const std::string& id : ids) {
    if (std::find(others.begin(), others.end(), id) == others.end()) continue;
    *which = id;
    return true;
  }
  return false;
}

}  // namespace

GrantLedger::GrantLedger(grant::RecordLog* log, const std::vector<std::string>& records,
                         size_t* skipped)
    : log_(log), records_(records.size()) {
  *skipped = 0;
  for (const std::string& record : records) {
    if (!Apply(record)) ++*skipped;
  }
}

std::string GrantLedger::EncodeBind(const grant::Nonce& nonce, const Entry& entry) {
  Json json = Json::MakeObject();
  json.Set("do", Json::String(kBind));
  json.Set("nonce", Json::String(grant::NonceText(nonce)));
  json.Set("resource", Json::String(entry.resource));
  json.Set("ids", Json::Strings(entry.ids));
  json.Set("uid", Json::String(entry.holder.pod_uid));
  json.Set("namespace", Json::String(entry.holder.pod_namespace));
  json.Set("pod", Json::String(entry.holder.pod_name));
  json.Set("container", Json::String(entry.holder.container));
  return json.Serialize();
}

std::string GrantLedger::EncodeSpent(const grant::Nonce& nonce, uint64_t who) {
  Json json = Json::MakeObject();
  json.Set("do", Json::String(kSpent));
  json.Set("nonce", Json::String(grant::NonceText(nonce)));
  json.Set("who", Json::String(fmt::format("{:016x}", who)));
  return json.Serialize();
}

bool GrantLedger::Apply(const std::string& record) {
  const Result<Json> json = ParseJson(record);
  if (!json.ok() || !json->is_object()) return false;
  const Result<std::string> what = json->StringAt("do");
  const Result<std::string> text = json->StringAt("nonce");
  if (!what.ok() || !text.ok()) return false;
  const Result<grant::Nonce> nonce = grant::ParseNonce(*text);
  if (!nonce.ok()) return false;
  if (*what == kSpent) {
    const std::string who = json->StringAt("who").value_or("");
    const Result<std::string> bytes = HexDecode(who);
    if (!bytes.ok() || bytes->size() != 8) return false;
    uint64_t fingerprint = 0;
    for (const char c : *bytes) fingerprint = fingerprint << 8 | static_cast<uint8_t>(c);
    live_.erase(*nonce);
    spent_[*nonce] = fingerprint;
    return true;
  }
  if (*what != kBind) return false;
  Entry entry;
  entry.resource = json->StringAt("resource").value_or("");
  entry.holder = {json->StringAt("uid").value_or(""), json->StringAt("namespace").value_or(""),
                  json->StringAt("pod").value_or(""), json->StringAt("container").value_or("")};
  const Json* ids = json->Find("ids");
  if (ids == nullptr || !ids->is_array()) return false;
  for (const Json& id : ids->items()) {
    if (!id.is_string()) return false;
    entry.ids.push_back(id.string_value());
  }
  spent_.erase(*nonce);
  live_[*nonce] = std::move(entry);
  return true;
}

Status GrantLedger::Write(const std::string& record) {
  if (rewrite_) RETURN_IF_ERROR(Rewrite());
  const Status status = log_->Append(record);
  if (status.ok()) {
    ++records_;
  } else {
    rewrite_ = true;
  }
  return status;
}

Status GrantLedger::Rewrite() {
  std::vector<std::string> all;
  for (const auto& [nonce, entry] : live_) all.push_back(EncodeBind(nonce, entry));
  for (const auto& [nonce, who] : spent_) all.push_back(EncodeSpent(nonce, who));
  RETURN_IF_ERROR(log_->Replace(all));
  records_ = all.size();
  rewrite_ = false;
  return Status::Ok();
}

Status GrantLedger::Check(const grant::Nonce& nonce, const ContainerRef& who, WallTime now) const {
  if (const auto found = live_.find(nonce); found != live_.end()) {
    if (SameContainer(found->second.holder, who)) return Status::Ok();
    return Error(Code::kPermissionDenied,
                 "the token belongs to container {} of pod {} (uid {}), not to {} of {} (uid {})",
                 found->second.holder.container, found->second.holder.PodText(),
                 found->second.holder.pod_uid, who.container, who.PodText(), who.pod_uid);
  }
  if (const auto found = spent_.find(nonce); found != spent_.end()) {
    // The pod was taken for gone and is not: it may have its devices again if they are free.
    if (found->second == Fingerprint(who)) return Status::Ok();
    return Error(Code::kPermissionDenied,
                 "the token was used by a container that is gone, and does not pass on to {} of {}",
                 who.container, who.PodText());
  }
  if (now - grant::MadeAt(nonce) > kTokenLifetime) {
    return Error(Code::kFailedPrecondition,
                 "the token of container {} of pod {} was never used and is older than {} days: "
                 "delete the pod and create it again",
                 who.container, who.PodText(),
                 std::chrono::duration_cast<std::chrono::hours>(kTokenLifetime).count() / 24);
  }
  return Status::Ok();
}

std::vector<GrantLedger::Conflict> GrantLedger::ConflictsOf(const std::string& resource,
                                                            const std::vector<std::string>& ids,
                                                            const std::string& pod_uid) const {
  std::vector<Conflict> conflicts;
  for (const auto& [nonce, entry] : live_) {
    std::string id;
    if (entry.holder.pod_uid == pod_uid || entry.resource != resource) continue;
    if (Shares(ids, entry.ids, &id)) conflicts.push_back({nonce, id, entry.holder});
  }
  return conflicts;
}

Status GrantLedger::Bind(const grant::Nonce& nonce, const std::string& resource,
                         const std::vector<std::string>& ids, const ContainerRef& who,
                         WallTime now) {
  RETURN_IF_ERROR(Check(nonce, who, now));
  if (live_.count(nonce) != 0) return Status::Ok();
  if (const auto conflicts = ConflictsOf(resource, ids, who.pod_uid); !conflicts.empty()) {
    return Error(Code::kFailedPrecondition, "{} is still held by container {} of pod {} (uid {})",
                 conflicts[0].id, conflicts[0].holder.container, conflicts[0].holder.PodText(),
                 conflicts[0].holder.pod_uid);
  }
  Entry entry{resource, ids, who};
  RETURN_IF_ERROR(Write(EncodeBind(nonce, entry)).Annotate("journal of grants"));
  spent_.erase(nonce);
  live_[nonce] = std::move(entry);
  return Status::Ok();
}

Status GrantLedger::Release(const grant::Nonce& nonce) {
  const auto found = live_.find(nonce);
  if (found == live_.end()) return Status(Code::kNotFound, "no such grant");
  const uint64_t who = Fingerprint(found->second.holder);
  RETURN_IF_ERROR(Write(EncodeSpent(nonce, who)).Annotate("journal of grants"));
  spent_[nonce] = who;
  live_.erase(nonce);
  return Status::Ok();
}

Status GrantLedger::Tidy(WallTime now) {
  // Nonces sort by their time, so the old ones come first.
  while (!spent_.empty() && now - grant::MadeAt(spent_.begin()->first) > kTokenLifetime) {
    spent_.erase(spent_.begin());
  }
  const size_t needed = live_.size() + spent_.size();
  if (!rewrite_ && records_ <= 2 * needed + kMinHistory) return Status::Ok();
  return Rewrite().Annotate("journal of grants");
}

}  // namespace tessera::agent
