// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/operator_installer.h"

#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "api/names.h"
#include "src/base/version.h"
#include "src/cli/install/spec_flags.h"
#include "src/cli/object_fields.h"
#include "src/cli/output/text.h"
#include "src/components/cluster_policy.h"
#include "src/components/objects.h"
#include "src/components/settings.h"
#include "src/kube/resources.h"

namespace tessera::cli {
namespace {

// The API server serves a custom resource about a second after its definition was created.
constexpr Duration kDefinitionTimeout = std::chrono::seconds(30);

// The problem that the operator reports, or the reason of its wait.
std::string ReasonOf(const Json& resource) {
  for (const char* type : {"Degraded", "Progressing", "Ready"}) {
    const Json* condition = ConditionOf(resource, type);
    if (condition == nullptr || IsTrue(condition) != (type != std::string_view("Ready"))) continue;
    return fmt::format("{}: {}", TextAt(*condition, {"reason"}), TextAt(*condition, {"message"}));
  }
  return "the operator has not written a status: check the pods of Deployment tessera-operator";
}

bool IsReady(const Json& resource) {
  const Json* ready = ConditionOf(resource, "Ready");
  return IsTrue(ready) &&
         NumberAt(*ready, {"observedGeneration"}) >= NumberAt(resource, {"metadata", "generation"});
}

}  // namespace

Result<std::vector<Json>> OperatorObjects(const Json& spec) {
  ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
  std::vector<Json> objects = components::RenderOperator(settings);
  objects.push_back(components::TesseraDefinition());
  objects.push_back(components::TesseraResource(spec));
  return objects;
}

Status OperatorInstaller::Install(const Json& spec, bool force) {
  ASSIGN_OR_RETURN(const std::vector<Json> objects, OperatorObjects(spec));
  InstallLock lock(api_);
  RETURN_IF_ERROR(lock.Acquire("tessera install --operator"));
  bool replaces_spec = false;
  if (force) {
    RETURN_IF_ERROR(CheckServerVersion(api_));
    ASSIGN_OR_RETURN(const std::optional<Json> resource, api_.Find(TesseraResourceId()));
    replaces_spec = resource.has_value();
  }
  if (!replaces_spec) RETURN_IF_ERROR(CheckNothingInstalled(force));
  return Apply(objects, replaces_spec, &lock);
}

Status OperatorInstaller::CheckNothingInstalled(bool force) {
  Status status = Installer(api_, out_, waits_).CheckNothingInstalled();
  const bool installed =
      status.code() == Code::kAlreadyExists || status.code() == Code::kFailedPrecondition;
  if (!force || !installed) return status;
  // The operator and the tool that installed the objects would undo each other's changes.
  return Error(status.code(),
               "Tessera is installed without the operator, and --operator --force replaces only an "
               "installation by the operator: run \"tessera uninstall\" first");
}

Status OperatorInstaller::Upgrade(const Json& resource, const Json& changes, bool reset,
                                  bool dry_run) {
  InstallLock lock(api_);
  if (!dry_run) RETURN_IF_ERROR(lock.Acquire("tessera upgrade"));
  RETURN_IF_ERROR(CheckServerVersion(api_));
  const Json* stored = resource.Find("spec");
  const InstallationRecord before{.version = std::string(kTesseraVersion),
                                  .spec = stored == nullptr ? Json::MakeObject() : *stored,
                                  .objects = {}};
  const Json spec = reset ? changes : CombineSpecs(before.spec, changes);
  ASSIGN_OR_RETURN(const std::vector<Json> objects, OperatorObjects(spec));
  const std::vector<Json> without_resource(objects.begin(), objects.end() - 1);
  RETURN_IF_ERROR(PrintChanges(api_, out_, before, spec, without_resource));
  return dry_run ? Status::Ok() : Apply(objects, /*replaces_spec=*/true, &lock);
}

Status OperatorInstaller::Apply(const std::vector<Json>& objects, bool replaces_spec,
                                InstallLock* lock) {
  RETURN_IF_ERROR(WaitForNamespaceDeletion(api_, *lock, out_, waits_.timeout));
  const MonotonicTime start = api_.Now();
  for (const Json& object : std::span(objects).first(objects.size() - 1)) {
    RETURN_IF_ERROR(lock->Renew());
    RETURN_IF_ERROR(api_.Apply(object, /*dry_run=*/false).status());
  }
  if (replaces_spec) RETURN_IF_ERROR(ReplaceSpec(*objects.back().Find("spec")));
  RETURN_IF_ERROR(ApplyResource(objects.back()));
  lock->Release();
  fmt::print(out_, "operator and resource of Tessera {} applied\n", kTesseraVersion);
  std::fflush(out_);
  if (!waits_.wait_until_ready) return Status::Ok();
  RETURN_IF_ERROR(WaitUntilReady());
  fmt::print(out_, "ready after {:.1f} s\n",
             std::chrono::duration<double>(api_.Now() - start).count());
  return Status::Ok();
}

// Replaces the spec by a JSON patch. Server-side apply would keep settings of other managers that
// are not in the new spec.
Status OperatorInstaller::ReplaceSpec(const Json& spec) {
  const Json change = Json::MakeObject(
      {{"op", Json::String("add")}, {"path", Json::String("/spec")}, {"value", spec}});
  return api_.Patch({kube::kTesseras, TesseraResourceId().name, "", ""}, kube::PatchKind::kJson,
                    Json::MakeArray({change}));
}

Status OperatorInstaller::ApplyResource(const Json& resource) {
  return api_.WaitUntil(api_.Now() + kDefinitionTimeout, [&]() -> Result<bool> {
    const Status applied = api_.Apply(resource, /*dry_run=*/false).status();
    if (applied.code() == Code::kNotFound) return false;
    RETURN_IF_ERROR(applied);
    return true;
  });
}

Status OperatorInstaller::WaitUntilReady() {
  std::string reason;
  const Status wait_status = api_.WaitUntil(api_.Now() + waits_.timeout, [&]() -> Result<bool> {
    ASSIGN_OR_RETURN(const Json resource, api_.Get(TesseraResourceId()));
    if (IsReady(resource)) return true;
    reason = ReasonOf(resource);
    return false;
  });
  if (wait_status.code() != Code::kDeadlineExceeded) return wait_status;
  return Error(
      Code::kDeadlineExceeded,
      "{} is not ready: {}: \"tessera status\" shows more; the operator goes on without this "
      "command",
      TesseraResourceId().Text(), Printable(reason));
}

}  // namespace tessera::cli
