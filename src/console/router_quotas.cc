// SPDX-License-Identifier: Apache-2.0
// HTTP paths of quotas and usage.
#include <utility>

#include "src/base/log.h"
#include "src/console/insight.h"
#include "src/console/quota_edit.h"
#include "src/console/replies.h"
#include "src/console/router.h"

namespace tessera::console {
namespace {

kube::ObjectRef QuotaMapOf(const ledger::FeedOptions& feed) {
  return {kube::kConfigMaps, feed.quota_name, feed.quota_ns, ""};
}

}  // namespace

void ConsoleRouter::ShowQuotas(const WebSession& session, const Reply& reply) {
  Json out = Json::MakeObject({});
  if (!model_.quota_problem().ok()) {
    out.Set("problem", Json::String(model_.quota_problem().message()));
  }
  const auto visible = [&](const std::string& ns) { return session.rights.SeesPodsOf(ns); };
  out.Set("lines", JsonOfQuotas(model_.ledger(), visible));
  const placement::QuotaConfig& config = model_.ledger().quota().config();
  Json entries = Json::MakeObject({});
  for (const auto& [ns, quota] : config) {
    if (visible(ns)) entries.Set(ns, JsonOfQuota(config, ns));
  }
  out.Set("entries", std::move(entries));
  out.Set("held", JsonOfHeld(model_.ledger(), visible));
  reply(JsonResponse(out));
}

void ConsoleRouter::ShowUsage(const WebSession& session, const Reply& reply) {
  if (meter_ == nullptr) {
    return reply(ErrorResponse(
        Error(Code::kUnimplemented, "this console does not record usage: --usage-label is empty")));
  }
  reply(JsonResponse(
      meter_->ToJson([&](const std::string& ns) { return session.rights.SeesPodsOf(ns); },
                     session.rights.all_pods)));
}

void ConsoleRouter::PreviewQuota(const net::Request& request, const SessionPtr& session,
                                 const Reply& reply) {
  if (!CheckRateLimit(*session, reply)) return;
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  const Result<QuotaChange> change = ParseQuotaChange(*body);
  if (!change.ok()) return reply(ErrorResponse(change.status()));
  if (!session->rights.SeesPodsOf(change->ns)) {
    return reply(
        ErrorResponse(Error(Code::kPermissionDenied, "{} may not list pods of namespace {}",
                            session->user, change->ns)));
  }
  Json consequences = Consequences(model_.ledger(), *change);
  auto answer = [consequences = std::move(consequences), reply](bool is_namespace_missing) mutable {
    if (is_namespace_missing) consequences.Set("noNamespace", Json::Bool(true));
    reply(JsonResponse(consequences));
  };
  if (!IsObjectName(change->ns)) return answer(/*is_namespace_missing=*/true);
  Send(
      session,
      [&](const kube::Client::OnObject& on_done) {
        return session->client->Get({kube::kNamespaces, change->ns, "", ""}, on_done);
      },
      // A user without the right to read namespaces gets no warning.
      [answer = std::move(answer)](const Result<Json>& found) mutable {
        answer(found.status().code() == Code::kNotFound);
      });
}

void ConsoleRouter::SetQuota(const net::Request& request, const SessionPtr& session,
                             const Reply& reply) {
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  const Result<QuotaChange> change = ParseQuotaChange(*body);
  if (!change.ok()) return reply(ErrorResponse(change.status()));
  Send(
      session,
      [&](const kube::Client::OnObject& on_done) {
        return session->client->Get(QuotaMapOf(model_.feed_options()), on_done);
      },
      [this, change = *change, session, reply](const Result<Json>& map) {
        WriteQuota(change, map, session, reply);
      });
}

void ConsoleRouter::WriteQuota(const QuotaChange& change, const Result<Json>& map,
                               const SessionPtr& session, const Reply& reply) {
  if (!map.ok() && map.status().code() != Code::kNotFound) {
    return reply(ErrorResponse(map.status()));
  }
  const ledger::FeedOptions& feed = model_.feed_options();
  const Result<Json> next =
      WithQuota(map.ok() ? &*map : nullptr, QuotaMapOf(feed), feed.quota_key, change);
  if (!next.ok()) return reply(ErrorResponse(next.status()));
  Send(
      session,
      // Replace sends the resourceVersion that was read, so that a concurrent write becomes a
      // conflict.
      [&](const kube::Client::OnObject& on_done) {
        kube::ObjectRef object = QuotaMapOf(feed);
        if (map.ok()) return session->client->Replace(object, *next, on_done);
        object.name.clear();
        return session->client->Create(object, *next, on_done);
      },
      [session, ns = change.ns, reply](const Result<Json>& written) {
        if (!written.ok()) return reply(ErrorResponse(written.status()));
        Log(Severity::kInfo, "quota changed", {{"user", session->user}, {"namespace", ns}});
        reply(JsonResponse(Json::MakeObject({})));
      });
}

}  // namespace tessera::console
