// SPDX-License-Identifier: Apache-2.0
#include "src/operator/status_writer.h"

#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/operator/tessera_resource.h"

namespace tessera::operators {

StatusWriter::StatusWriter(kube::Client& client, kube::BeforeSend before_send,
                           OperatorMetrics& metrics, OnPublished on_published)
    : client_(client),
      before_send_(std::move(before_send)),
      metrics_(metrics),
      on_published_(std::move(on_published)) {}

void StatusWriter::Write(const kube::JsonObject& resource, const StatusInput& input, Done done) {
  const Json* previous = resource.value.Find("status");
  Json status = StatusOf(input, previous, client_.runner().clock().WallNow());
  const std::string text = CanonicalText(status);
  const bool written = text == written_ && resource.meta.resource_version == written_over_;
  const bool stands = previous != nullptr && CanonicalText(*previous) == text;
  if (stands) on_published_(input, {});
  if (written || stands) return done(Status::Ok());
  std::vector<StatusChange> changes = ChangesBetween(previous, status);
  written_ = text;
  written_over_ = resource.meta.resource_version;
  Send(resource, std::move(status), input, std::move(changes), std::move(done));
}

void StatusWriter::Send(const kube::JsonObject& resource, Json status, const StatusInput& input,
                        std::vector<StatusChange> changes, Done done) {
  const Json body = Json::MakeObject(
      {{"apiVersion", Json::String(ApiVersionOfTessera())},
       {"kind", Json::String(names::kResourceKind)},
       {"metadata", Json::MakeObject({{"name", Json::String(resource.meta.name)},
                                      {"uid", Json::String(resource.meta.uid.str())}})},
       {"status", std::move(status)}});
  const kube::ApplyOptions apply{.field_manager = std::string(names::kOperator),
                                 .force = true,
                                 .subresource = "status",
                                 .before_send = before_send_};
  write_ = client_.Apply(kTesseras, body, apply,
                         [this, input, changes = std::move(changes),
                          done = std::move(done)](const Result<Json>& answer) {
                           if (answer.status().code() == Code::kNotFound) return done(Status::Ok());
                           if (!answer.ok()) {
                             written_.clear();
                             Log(Severity::kWarning, "cannot write the status, retrying",
                                 {{"error", answer.status().ToString()}});
                             return done(answer.status());
                           }
                           metrics_.status_writes.Add();
                           on_published_(input, changes);
                           done(Status::Ok());
                         });
}

}  // namespace tessera::operators
