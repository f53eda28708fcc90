// SPDX-License-Identifier: Apache-2.0
// HTTP paths of one node: its state, usage and mode, and the actions drain, cordon and set mode.
#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/console/drain.h"
#include "src/console/json_of.h"
#include "src/console/node_modes.h"
#include "src/console/replies.h"
#include "src/console/router.h"
#include "src/formats/json.h"

namespace tessera::console {
namespace {

const kube::ListQuery& AgentDaemonSets() {
  static const kube::ListQuery query{.type = kube::kDaemonSets,
                                     .ns = std::string(names::kSystemNamespace),
                                     .label_selector = std::string(names::kAgentSelector)};
  return query;
}

StringMap LabelsOf(const Json& node) {
  StringMap labels;
  for (const auto& [label, value] : MembersAt(node, {"metadata", "labels"})) {
    if (value.is_string()) labels[label] = value.string_value();
  }
  return labels;
}

Json CordonPatch(bool cordoned) {
  return Json::MakeObject(
      {{"spec", Json::MakeObject({{"unschedulable", cordoned ? Json::Bool(true) : Json()}})}});
}

}  // namespace

void ConsoleRouter::RouteNode(const net::Request& request, std::string_view rest,
                              const SessionPtr& session, const Reply& reply) {
  // A node name has no slash.
  const size_t slash = rest.find('/');
  const std::string name = net::PercentDecode(rest.substr(0, slash)).value_or("");
  const std::string_view subpath = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  if (!session->rights.nodes) {
    return reply(
        ErrorResponse(Error(Code::kPermissionDenied, "{} may not list nodes", session->user)));
  }
  // Rejects unknown node names, so that they never become part of a selector.
  if (!model_.nodes().contains(name)) {
    return reply(ErrorResponse(Error(Code::kNotFound, "there is no node \"{}\" with GPUs", name)));
  }
  if (IsGetOrHead(request)) {
    if (subpath.empty()) return ShowNode(name, *session, reply);
    if (!CheckRateLimit(*session, reply)) return;
    if (subpath == "usage") {
      return node_usage_.Read(session, name,
                              [reply](const Result<Json>& usage) { reply(ResponseOf(usage)); });
    }
    if (subpath == "history") return ShowNodeHistory(request, name, session, reply);
    if (subpath == "mode") return ShowModes(name, session, reply);
  } else {
    const Result<Json> body = BodyOf(request);
    if (!body.ok()) return reply(ErrorResponse(body.status()));
    if (!CheckRateLimit(*session, reply)) return;
    if (subpath == "drain") return DrainNode(name, *body, session, reply);
    if (subpath == "cordon") return CordonNode(name, *body, session, reply);
    if (subpath == "mode") return ChooseMode(name, *body, session, reply);
  }
  reply(ErrorResponse(Error(Code::kNotFound, "no such path")));
}

bool ConsoleRouter::MayReadAgents(const WebSession& session, const Reply& reply) {
  if (session.rights.agents) return true;
  reply(ErrorResponse(Error(Code::kPermissionDenied,
                            "{} may not read from the agents of namespace {}", session.user,
                            names::kSystemNamespace)));
  return false;
}

void ConsoleRouter::ShowGauges(const net::Request& request, const WebSession& session,
                               const Reply& reply) {
  if (!CheckRateLimit(session, reply)) return;
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  const Json* list = body->Find("nodes");
  if (list == nullptr || !list->is_array() || list->items().size() > NodeGauges::kMaxNodes) {
    return reply(ErrorResponse(Error(Code::kInvalidArgument,
                                     "invalid nodes: want a list of at most {} names",
                                     NodeGauges::kMaxNodes)));
  }
  if (!MayReadAgents(session, reply)) return;
  std::vector<std::string> nodes;
  for (const Json& name : list->items()) {
    // Skips names that are not, or no longer, nodes: they must not fail the request for the others.
    if (!session.rights.nodes || !name.is_string()) continue;
    if (model_.nodes().contains(name.string_value())) nodes.push_back(name.string_value());
  }
  reply(JsonTextResponse(200, fmt::format("{{\"nodes\":{}}}", gauges_.Read(nodes))));
}

// Prometheus does not authorize single users. A user may see its curves only with the right to read
// the same values from the agents.
void ConsoleRouter::ShowNodeHistory(const net::Request& request, const std::string& name,
                                    const SessionPtr& session, const Reply& reply) {
  if (history_ == nullptr) {
    return reply(ErrorResponse(
        Error(Code::kUnimplemented, "this console reads no Prometheus: set --prometheus-url")));
  }
  const Result<int64_t> hours = ParseInt(request.Query("hours").value_or(""));
  if (!hours.ok() || *hours < 1 || *hours > MetricHistory::kMaxSpan.count()) {
    return reply(ErrorResponse(Error(Code::kInvalidArgument, "invalid hours: want 1 to {}",
                                     MetricHistory::kMaxSpan.count())));
  }
  if (!MayReadAgents(*session, reply)) return;
  const ledger::NodeEntry* node = model_.ledger().FindNode(name);
  std::vector<std::string> uuids;
  if (node != nullptr) {
    const device::NodeInventory inventory = node->node.inventory.Full();
    for (const device::Gpu& gpu : inventory.gpus) uuids.push_back(gpu.uuid);
  }
  history_->Read(uuids, std::chrono::hours(*hours),
                 [reply](const Result<Json>& curves) { reply(ResponseOf(curves)); });
}

void ConsoleRouter::ShowNode(const std::string& name, const WebSession& session,
                             const Reply& reply) {
  const ledger::NodeEntry* node = model_.ledger().FindNode(name);
  if (node == nullptr) {
    return reply(ErrorResponse(Error(Code::kNotFound, "there is no node \"{}\" with GPUs", name)));
  }
  const device::NodeInventory& inventory = node->node.inventory.without_uuids();
  Json gpus = Json::MakeArray();
  for (const device::Gpu& gpu : inventory.gpus) gpus.Append(Json::Int(gpu.index));
  const Json details = Json::MakeObject({{"links", JsonOfLinks(inventory)},
                                         {"indices", std::move(gpus)},
                                         {"cuda", Json::Int(inventory.cuda_version)},
                                         {"notes", Json::Strings(inventory.notes)}});
  reply(JsonTextResponse(
      200, fmt::format("{{\"node\":{},\"details\":{}}}",
                       model_.NodeText(name, PodsSeenBy(session.rights)), details.Serialize())));
}

void ConsoleRouter::DrainNode(const std::string& name, const Json& body, const SessionPtr& session,
                              const Reply& reply) {
  const DrainOptions options{.node = name,
                             .dry_run = body.BoolAt("dryRun").value_or(true),
                             .force = body.BoolAt("force").value_or(false)};
  if (!options.dry_run) {
    Log(Severity::kInfo, "drain of a node requested", {{"user", session->user}, {"node", name}});
  }
  ReplyWithTask(
      reply, [&](auto done) { return std::make_shared<Drain>(session, options, std::move(done)); });
}

void ConsoleRouter::CordonNode(const std::string& name, const Json& body, const SessionPtr& session,
                               const Reply& reply) {
  const Result<bool> cordoned = body.BoolAt("cordoned");
  if (!cordoned.ok()) return reply(ErrorResponse(cordoned.status()));
  PatchNode(name, CordonPatch(*cordoned), session, reply);
}

void ConsoleRouter::PatchNode(const std::string& name, const Json& patch, const SessionPtr& session,
                              const Reply& reply) {
  Send(
      session,
      [&](const kube::Client::OnObject& on_done) {
        return session->client->Patch(kube::Node(name), kube::PatchKind::kMerge, patch, {},
                                      on_done);
      },
      [reply](const Result<Json>& node) {
        reply(node.ok() ? JsonResponse(Json::MakeObject({})) : ErrorResponse(node.status()));
      });
}

void ConsoleRouter::WithModes(const std::string& name, const SessionPtr& session,
                              const Reply& reply, const OnModes& then) {
  Send(
      session,
      [&](const kube::Client::OnObject& on_done) {
        return session->client->Get(kube::Node(name), on_done);
      },
      [this, session, reply, then](const Result<Json>& node) {
        if (!node.ok()) return reply(ErrorResponse(node.status()));
        const StringMap labels = LabelsOf(*node);
        const uint64_t number = NewTask();
        KeepOperation(
            number, session,
            session->client->List(AgentDaemonSets(), [=, this](const Result<kube::ListPage>& page) {
              EndTask(number);
              if (!page.ok()) {
                return reply(
                    ErrorResponse(page.status().Annotate("cannot list the DaemonSets of agents")));
              }
              std::vector<AgentPool> pools;
              for (const kube::RawObject& raw : page->items) {
                if (auto pool = AgentPoolOf(*raw.json())) pools.push_back(*std::move(pool));
              }
              then(pools, labels);
            }));
      });
}

void ConsoleRouter::ShowModes(const std::string& name, const SessionPtr& session,
                              const Reply& reply) {
  WithModes(name, session, reply,
            [reply](const std::vector<AgentPool>& pools, const StringMap& labels) {
              reply(JsonResponse(JsonOfModes(pools, labels)));
            });
}

void ConsoleRouter::ChooseMode(const std::string& name, const Json& body, const SessionPtr& session,
                               const Reply& reply) {
  const std::string pool_name = body.StringAt("pool").value_or("");
  WithModes(
      name, session, reply,
      [this, name, pool_name, session, reply](const std::vector<AgentPool>& pools,
                                              const StringMap& labels) {
        const auto pool = std::ranges::find(pools, pool_name, &AgentPool::name);
        if (pool == pools.end()) {
          return reply(ErrorResponse(Error(Code::kNotFound, "there is no pool \"{}\"", pool_name)));
        }
        const LabelChange change = ChangeFor(*pool, pools, labels);
        if (!change.problem.empty()) {
          return reply(ErrorResponse(Error(Code::kFailedPrecondition,
                                           "cannot move the node to pool \"{}\": {}", pool_name,
                                           change.problem)));
        }
        Log(Severity::kInfo, "mode of a node requested",
            {{"user", session->user}, {"node", name}, {"pool", pool_name}});
        const Json labels_patch = Json::MakeObject({{"labels", JsonOfChange(change)}});
        PatchNode(name, Json::MakeObject({{"metadata", labels_patch}}), session, reply);
      });
}

}  // namespace tessera::console
