// SPDX-License-Identifier: Apache-2.0
// Paths of workloads and quotas: questions to the placement engine, and new workloads.
#include <utility>

#include "src/base/log.h"
#include "src/console/insight.h"
#include "src/console/replies.h"
#include "src/console/router.h"
#include "src/console/workload.h"
#include "src/formats/yaml.h"

namespace tessera::console {

void ConsoleRouter::Explain(const net::Request& request, const WebSession& session,
                            const Reply& reply) {
  const std::string ns = request.Query("namespace").value_or("");
  const std::string name = request.Query("name").value_or("");
  // The same answer for a pod that is not there and one that the person may not see.
  const kube::PodObject* pod = session.rights.SeesPodsOf(ns) ? model_.FindPod(ns, name) : nullptr;
  if (pod == nullptr) {
    return reply(ErrorResponse(
        Error(Code::kNotFound, "there is no pod {}/{} that you may see and that has not ended", ns,
              name)));
  }
  reply(JsonResponse(
      ExplainPod(model_.ledger(), *pod, session.rights.nodes && session.rights.all_pods)));
}

void ConsoleRouter::ShowQuotas(const WebSession& session, const Reply& reply) {
  Json out = Json::MakeObject({});
  if (!model_.quota_problem().ok()) {
    out.Set("problem", Json::String(model_.quota_problem().message()));
  }
  out.Set("lines", JsonOfQuotas(model_.ledger(), [&](const std::string& ns) {
            return session.rights.SeesPodsOf(ns);
          }));
  reply(JsonResponse(out));
}

void ConsoleRouter::PreviewWorkload(const net::Request& request, const WebSession& session,
                                    const Reply& reply) {
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  std::string yaml = body->StringAt("yaml").value_or("");
  if (const Json* form = body->Find("form"); form != nullptr && form->is_object()) {
    FieldErrors errors;
    const WorkloadForm parsed = ParseForm(*form, &errors);
    if (!errors.empty()) return reply(ErrorsOfFields(errors));
    yaml = WriteYaml(ManifestOf(parsed));
  }
  const Result<Manifest> manifest = ParseManifest(yaml);
  if (!manifest.ok()) return reply(ErrorsOfFields({{"yaml", manifest.status().message()}}));
  Json out = Json::MakeObject({{"yaml", Json::String(yaml)}});
  const auto form = FormOf(manifest->object);
  if (form) out.Set("form", JsonOfForm(*form));
  Result<Json> preview =
      Preview(model_.ledger(), *manifest, session.rights.SeesPodsOf(manifest->ns));
  if (!preview.ok()) return reply(ErrorsOfFields({{"yaml", preview.status().message()}}));
  out.Set("preview", *std::move(preview));
  reply(JsonResponse(out));
}

void ConsoleRouter::Apply(const net::Request& request, const SessionPtr& session,
                          const Reply& reply) {
  const Result<Json> body = BodyOf(request);
  if (!body.ok()) return reply(ErrorResponse(body.status()));
  const Result<Manifest> manifest = ParseManifest(body->StringAt("yaml").value_or(""));
  if (!manifest.ok()) return reply(ErrorResponse(manifest.status()));
  const kube::ObjectRef object{manifest->deployment ? kube::kDeployments : kube::kPods, "",
                               manifest->ns, ""};
  Send(
      session,
      [&](const kube::Client::OnObject& on_done) {
        return session->client->Create(object, manifest->object, on_done);
      },
      [session, reply](const Result<Json>& created) {
        if (!created.ok()) return reply(ErrorResponse(created.status()));
        const Json* meta = created->Find("metadata");
        Json out = Json::MakeObject({});
        for (const char* field : {"namespace", "name"}) {
          out.Set(field, Json::String(meta == nullptr ? "" : meta->StringAt(field).value_or("")));
        }
        Log(Severity::kInfo, "created a workload",
            {{"user", session->user}, {"name", out.StringAt("name").value_or("")}});
        reply(JsonResponse(out));
      });
}

}  // namespace tessera::console
