// SPDX-License-Identifier: Apache-2.0
#include "src/console/missing_rights.h"

#include <utility>

#include "api/names.h"

namespace tessera::console {
namespace {

// "patch nodes", "update configmaps gpuquota in kube-system".
std::string TextOf(const AccessRequest& access) {
  std::string text = access.verb + " " + access.resource;
  if (!access.group.empty()) text += "." + access.group;
  if (!access.name.empty()) text += " " + access.name;
  if (!access.ns.empty()) text += " in " + access.ns;
  return text;
}

Json JsonOfMissing(const auto& rights) {
  Json missing_by_control = Json::MakeObject();
  for (const auto& right : rights) {
    for (const std::string& control : right.controls) {
      Json& missing = missing_by_control.Find(control) == nullptr
                          ? missing_by_control.Set(control, Json::MakeArray())
                          : *missing_by_control.Find(control);
      if (!right.allowed) missing.Append(Json::String(TextOf(right.access)));
    }
  }
  return missing_by_control;
}

}  // namespace

MissingRights::MissingRights(std::shared_ptr<WebSession> session, const ledger::FeedOptions& feed,
                             Done done)
    : session_(std::move(session)), done_(std::move(done)) {
  const std::string agent_namespace(names::kSystemNamespace);
  const auto quota = [&](const char* verb) {
    return AccessRequest{
        .verb = verb, .resource = "configmaps", .ns = feed.quota_ns, .name = feed.quota_name};
  };
  rights_ = {
      {{.verb = "patch", .resource = "nodes"}, {"cordon", "drain", "mode"}},
      {{.verb = "list", .resource = "pods"}, {"drain"}},
      {{.verb = "create", .resource = "pods/eviction"}, {"drain"}},
      {{.verb = "list", .group = "apps", .resource = "daemonsets", .ns = agent_namespace},
       {"mode"}},
      {quota("get"), {"quota"}},
      {quota("update"), {"quota"}},
  };
  unanswered_ = rights_.size();
  for (Right& right : rights_) {
    operations_.push_back(
        CheckAccess(*session_->client, right.access,
                    [this, &right](const Result<Json>& answer) { OnAnswer(right, answer); }));
  }
}

void MissingRights::OnAnswer(Right& right, const Result<Json>& answer) {
  if (!done_) return;  // an earlier answer was an error
  if (!answer.ok()) return std::exchange(done_, nullptr)(answer.status());
  right.allowed = IsAllowed(*answer);
  if (--unanswered_ == 0) std::exchange(done_, nullptr)(JsonOfMissing(rights_));
}

}  // namespace tessera::console
