// SPDX-License-Identifier: Apache-2.0
// HTTP paths of workloads: queries to the placement engine, and the creation of workloads.
#include <utility>

#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/console/insight.h"
#include "src/console/missing_rights.h"
#include "src/console/pod_run.h"
#include "src/console/replies.h"
#include "src/console/router.h"
#include "src/console/what_if.h"
#include "src/console/workload.h"

namespace tessera::console {
namespace {

bool SeesAll(const WebSession& session) { return session.rights.nodes && session.rights.all_pods; }

// The manifest after an edit. In `body`, "yaml" is the text before the edit, and "form" has the
// fields that the user has changed; for a new manifest, all fields. Stores problems of the form in
// `errors`.
Result<Manifest> EditedManifest(const Json& body, FieldErrors* errors) {
  const std::string yaml = body.StringAt("yaml").value_or("");
  const Json* form = body.Find("form");
  if (form == nullptr || !form->is_object()) return ParseManifest(yaml);
  if (Trim(yaml).empty()) return ParseManifest(ManifestOf(ParseForm(*form, nullptr, errors).form));
  ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(yaml));
  const FormReading before = ReadForm(manifest);
  ASSIGN_OR_RETURN(const std::string text,
                   WithEdit(manifest, before, ParseForm(*form, &before, errors)));
  return ParseManifest(text);
}

// Adds the API server's verdict on a dry run of the manifest. If there is none, the user may still
// create the manifest.
void AddVerdict(const Manifest& manifest, const Status& verdict, Json* out) {
  const std::string& message = verdict.message();
  const auto at_field = [&](const char* field) {
    out->Set("fields", Json::MakeObject({{field, Json::String(manifest.WithLine(message))}}));
  };
  switch (verdict.code()) {
    case Code::kOk:
      return;
    case Code::kAlreadyExists:
      return at_field("exists");
    case Code::kNotFound:
      return at_field("noNamespace");
    case Code::kPermissionDenied:
      // Quotas and admission webhooks answer Forbidden, too, but because of the manifest.
      if (message.find("cannot create resource") == std::string::npos) return at_field("yaml");
      out->Set("denied", Json::String(message));
      return;
    case Code::kInvalidArgument:
      // An admission webhook with side effects rejects each dry run.
      if (message.find("does not support dry run") == std::string::npos) return at_field("yaml");
      [[fallthrough]];
    default:
      out->Set("unchecked", Json::String(message));
  }
}

}  // namespace

const ledger::PodEntry* ConsoleRouter::PodFor(const std::string& ns, const std::string& name,
                                              const WebSession& session, const Reply& reply) const {
  // The answer does not tell whether a pod that the user may not see exists.
  const ledger::PodEntry* pod =
      session.rights.SeesPodsOf(ns) ? model_.ledger().FindPod(ns, name) : nullptr;
  if (pod == nullptr) {
    reply(ErrorResponse(Error(Code::kNotFound,
                              "there is no pod {}/{} that you may see and that has not ended", ns,
                              name)));
  }
  return pod;
}

void ConsoleRouter::Explain(const net::Request& request, const WebSession& session,
                            const Reply& reply) {
  if (!CheckRateLimit(session, reply)) return;
  const ledger::PodEntry* pod = PodFor(request.Query("namespace").value_or(""),
                                       request.Query("name").value_or(""), session, reply);
  if (pod == nullptr) return;
  reply(JsonResponse(ExplainPod(model_.ledger(), pod->request.uid, SeesAll(session))));
}

void ConsoleRouter::ShowPodsToMove(const net::Request& request, const WebSession& session,
                                   const Reply& reply) {
  if (!CheckRateLimit(session, reply)) return;
  if (!SeesAll(session)) {
    return reply(ErrorResponse(
        Error(Code::kPermissionDenied, "{} may not list all nodes and pods", session.user)));
  }
  const ledger::PodEntry* pod = PodFor(request.Query("namespace").value_or(""),
                                       request.Query("name").value_or(""), session, reply);
  if (pod == nullptr) return;
  if (!pod->node.empty()) {
    return reply(ErrorResponse(Error(Code::kFailedPrecondition, "the pod has a node")));
  }
  reply(JsonResponse(FindPodsToMove(model_.ledger(), pod->request)));
}

void ConsoleRouter::AnswerWhatIf(const net::Request& request, const WebSession& session,
                                 const Reply& reply) {
  if (!CheckRateLimit(session, reply)) return;
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  const Result<WhatIf> what_if = ParseWhatIf(*body);
  if (!what_if.ok()) return reply(ErrorResponse(what_if.status()));
  const ledger::PodEntry* pod = PodFor(body->StringAt("namespace").value_or(""),
                                       body->StringAt("name").value_or(""), session, reply);
  if (pod == nullptr) return;
  if (!what_if->without_name.empty() &&
      PodFor(what_if->without_ns, what_if->without_name, session, reply) == nullptr) {
    return;
  }
  reply(ResponseOf(
      console::AnswerWhatIf(model_.ledger(), pod->request.uid, *what_if, SeesAll(session))));
}

void ConsoleRouter::PreviewWorkload(const net::Request& request, const SessionPtr& session,
                                    const Reply& reply) {
  if (!CheckRateLimit(*session, reply)) return;
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  FieldErrors errors;
  const Result<Manifest> manifest = EditedManifest(*body, &errors);
  if (!errors.empty()) return reply(FieldErrorsResponse(errors));
  if (!manifest.ok()) return reply(FieldErrorsResponse({{"yaml", manifest.status().message()}}));
  Json out = JsonOf(ReadForm(*manifest));
  out.Set("yaml", Json::String(manifest->text));
  const Result<Json> preview =
      Preview(model_.ledger(), *manifest, session->rights.SeesPodsOf(manifest->ns));
  if (preview.ok()) out.Set("preview", *preview);
  Create(*manifest, /*dry_run=*/true, session,
         [manifest = *manifest, out = std::move(out), invalid = preview.status(),
          reply](const Result<Json>& created) mutable {
           if (created.status().code() == Code::kUnauthenticated) {
             return reply(ErrorResponse(created.status()));
           }
           AddVerdict(manifest, created.status(), &out);
           if (!invalid.ok() && out.Find("fields") == nullptr) {
             out.Set("fields", Json::MakeObject({{"yaml", Json::String(invalid.message())}}));
           }
           reply(JsonResponse(out));
         });
}

void ConsoleRouter::Create(const Manifest& manifest, bool dry_run, const SessionPtr& session,
                           kube::Client::OnObject then) {
  const kube::ObjectRef object{manifest.deployment ? kube::kDeployments : kube::kPods, "",
                               manifest.ns, ""};
  Send(
      session,
      [&](const kube::Client::OnObject& on_done) {
        return session->client->Create(object, manifest.object, on_done,
                                       {.dry_run = dry_run, .strict = true});
      },
      std::move(then));
}

void ConsoleRouter::Apply(const net::Request& request, const SessionPtr& session,
                          const Reply& reply) {
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  const Result<Manifest> manifest = ParseManifest(body->StringAt("yaml").value_or(""));
  if (!manifest.ok()) return reply(ErrorResponse(manifest.status()));
  Create(*manifest, /*dry_run=*/false, session,
         [session, reply, manifest = *manifest](const Result<Json>& created) {
           if (!created.ok()) {
             return reply(ErrorResponse(
                 Status(created.status().code(), manifest.WithLine(created.status().message()))));
           }
           Json out = Json::MakeObject({});
           for (const char* field : {"namespace", "name"}) {
             out.Set(field, Json::String(TextAt(*created, {"metadata", field})));
           }
           if (manifest.deployment) out.Set("selector", Json::String(SelectorOf(*created)));
           Log(Severity::kInfo, "workload created",
               {{"user", session->user}, {"name", out.StringAt("name").value_or("")}});
           reply(JsonResponse(out));
         });
}

void ConsoleRouter::ReadAsUser(const net::Request& request, const SessionPtr& session,
                               const Reply& reply) {
  if (!CheckRateLimit(*session, reply)) return;
  if (request.path() == "/api/v1/missing-rights") {
    return ReplyWithTask(reply, [&](auto done) {
      return std::make_shared<MissingRights>(session, model_.feed_options(), std::move(done));
    });
  }
  if (request.path() == "/api/v1/ended") {
    if (!session->rights.all_pods && session->rights.namespaces.empty()) {
      return reply(JsonResponse(
          Json::MakeObject({{"pods", Json::MakeArray()}, {"complete", Json::Bool(true)}})));
    }
    return ReplyWithTask(reply, [&](auto done) {
      return std::make_shared<EndedPodReader>(session, std::move(done));
    });
  }
  const RunReader::Target target{.ns = request.Query("namespace").value_or(""),
                                 .pod = request.Query("name").value_or(""),
                                 .deployment = request.Query("deployment").value_or(""),
                                 .selector = request.Query("selector").value_or("")};
  const bool valid = target.pod.empty()
                         ? IsObjectName(target.deployment) && !target.selector.empty()
                         : IsObjectName(target.pod);
  if (!valid || !IsObjectName(target.ns)) {
    return reply(
        ErrorResponse(Error(Code::kInvalidArgument,
                            "invalid query of /api/v1/run: want namespace and name, or namespace, "
                            "deployment and selector")));
  }
  ReplyWithTask(reply, [&](auto done) {
    return std::make_shared<RunReader>(session, target, std::move(done));
  });
}

}  // namespace tessera::console
