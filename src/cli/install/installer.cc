// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/installer.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "api/names.h"
#include "src/base/version.h"
#include "src/cli/install/changes.h"
#include "src/cli/install/helm_release.h"
#include "src/cli/install/rollout.h"
#include "src/cli/install/spec_flags.h"
#include "src/cli/object_fields.h"
#include "src/cli/output/text.h"
#include "src/components/cluster_policy.h"
#include "src/components/objects.h"
#include "src/components/settings.h"

namespace tessera::cli {
namespace {

// The first Kubernetes 1.x whose pod tokens name the pod's node (deploy/chart/Chart.yaml).
constexpr int kMinMinor = 32;

bool IsNamespace(const ObjectId& id) { return id.kind == "Namespace"; }

// Why the API server rejects the object; "" if it does not.
Result<std::string> WhyRejected(ClusterClient& api, const Json& object, bool has_namespace) {
  const ObjectId id = IdOf(object);
  Json checked = object;
  // The server checks objects only in an existing namespace.
  const bool uses_other_namespace = !has_namespace && id.ns == names::kSystemNamespace;
  if (uses_other_namespace) checked.Find("metadata")->Set("namespace", Json::String("default"));
  const Status answer = api.Apply(checked, /*dry_run=*/true).status();
  const bool rejected = answer.code() == Code::kInvalidArgument || answer.code() == Code::kNotFound;
  if (answer.ok()) return std::string();
  if (!rejected) return answer;
  // The server knows the type of this resource only after an installation.
  if (id == TesseraResourceId() && answer.code() == Code::kNotFound) {
    return std::string();
  }
  // Removes the request's path, which names the wrong namespace, from the message.
  const std::string place = IdOf(checked).Text() + ": ";
  std::string_view why = answer.message();
  if (why.starts_with(place)) why.remove_prefix(place.size());
  if (why.starts_with("PATCH /")) why.remove_prefix(std::min(why.find(": ") + 2, why.size()));
  return fmt::format("{}: {}", id.Text(), why);
}

// Why a namespace that is being deleted still exists, by the namespace controller's conditions.
std::string WhyNamespaceStays(const Json& ns) {
  std::string why;
  for (const char* type :
       {"NamespaceContentRemaining", "NamespaceFinalizersRemaining",
        "NamespaceDeletionContentFailure", "NamespaceDeletionDiscoveryFailure"}) {
    const Json* condition = ConditionOf(ns, type);
    if (!IsTrue(condition)) continue;
    why += fmt::format("{}{}", why.empty() ? "" : "; ", TextAt(*condition, {"message"}));
  }
  return why.empty() ? "its conditions do not say why" : why;
}

double SecondsOf(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Result<std::vector<Json>> ObjectsToInstall(const Json& spec) {
  RETURN_IF_ERROR(components::CheckWithoutOperator(spec));
  ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
  std::vector<Json> objects = {components::SystemNamespace()};
  for (Json& object : components::RenderObjects(settings)) objects.push_back(std::move(object));
  return objects;
}

Status CheckByServer(ClusterClient& api, const std::vector<Json>& objects) {
  ASSIGN_OR_RETURN(const std::optional<Json> ns, api.Find(IdOf(components::SystemNamespace())));
  std::vector<std::string> problems;
  for (const Json& object : objects) {
    ASSIGN_OR_RETURN(std::string why, WhyRejected(api, object, ns.has_value()));
    if (!why.empty()) problems.push_back(std::move(why));
  }
  if (problems.empty()) return Status::Ok();
  return Error(Code::kInvalidArgument, "the API server rejects {} of {} objects: {}",
               problems.size(), objects.size(), fmt::join(problems, "; "));
}

Status CheckServerVersion(ClusterClient& api) {
  ASSIGN_OR_RETURN(const Json version, api.GetDocument("/version"));
  const std::string minor = version.StringAt("minor").value_or("");
  if (std::atoi(minor.c_str()) >= kMinMinor) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "the cluster has Kubernetes {}: Tessera needs Kubernetes 1.{} or later, where "
               "the token of a pod names the pod's node, which Tessera checks",
               version.StringAt("gitVersion").value_or("of an unknown version"), kMinMinor);
}

Result<std::optional<InstallationRecord>> FindInstallation(ClusterClient& api) {
  ASSIGN_OR_RETURN(const std::optional<Json> object, api.Find(InventoryId()));
  if (!object) return std::optional<InstallationRecord>();
  ASSIGN_OR_RETURN(InstallationRecord installation, ReadInventory(*object));
  return std::optional(std::move(installation));
}

ObjectId TesseraResourceId() {
  return {std::string(names::kCustomResourceApiVersion), std::string(names::kCustomResourceKind),
          "", std::string(names::kCustomResourceName)};
}

Status CheckNoOperator(ClusterClient& api) {
  ASSIGN_OR_RETURN(const std::optional<Json> resource, api.Find(TesseraResourceId()));
  if (!resource) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "Tessera is installed by its operator: use \"tessera upgrade\", which keeps its "
               "settings, or change them in its resource: \"kubectl edit tessera tessera\"; "
               "\"tessera status --wait\" waits until all works");
}

Status WaitForNamespaceDeletion(ClusterClient& api, InstallLock& lock, std::FILE* out,
                                Duration timeout) {
  const ObjectId id = IdOf(components::SystemNamespace());
  bool is_being_deleted = false;
  std::string why;
  const Status wait_status = api.WaitUntil(api.Now() + timeout, [&]() -> Result<bool> {
    RETURN_IF_ERROR(lock.Renew());
    ASSIGN_OR_RETURN(const std::optional<Json> ns, api.Find(id));
    if (!ns || !IsBeingDeleted(*ns)) return true;
    if (!is_being_deleted)
      fmt::print(out, "{} is being deleted: waiting until it is gone\n", id.Text());
    std::fflush(out);
    is_being_deleted = true;
    why = WhyNamespaceStays(*ns);
    return false;
  });
  if (wait_status.code() != Code::kDeadlineExceeded || !is_being_deleted) return wait_status;
  return Error(Code::kDeadlineExceeded,
               "{} is still being deleted after {:.0f} s: {}: remove what keeps it, and run this "
               "command again",
               id.Text(), SecondsOf(timeout), Printable(why));
}

Status PrintChanges(ClusterClient& api, std::FILE* out, const InstallationRecord& before,
                    const Json& spec, const std::vector<Json>& objects) {
  if (before.version != kTesseraVersion) {
    fmt::print(out, "version: {} -> {}\n", Printable(before.version), kTesseraVersion);
  }
  for (const std::string& line : ChangesOf(before.spec, spec)) {
    fmt::print(out, "settings: {}\n", Printable(line));
  }
  size_t changed = 0;
  for (const Json& object : objects) {
    const ObjectId id = IdOf(object);
    ASSIGN_OR_RETURN(const std::optional<Json> current, api.Find(id));
    if (!current) {
      fmt::print(out, "{}: created\n", id.Text());
      ++changed;
      continue;
    }
    // A dry run of the server returns the object as it would be. An invalid object is rejected
    // here, before any object has changed.
    ASSIGN_OR_RETURN(const Json planned, api.Apply(object, /*dry_run=*/true));
    const std::vector<std::string> lines = ChangesOf(*current, planned);
    for (const std::string& line : lines) fmt::print(out, "{}: {}\n", id.Text(), Printable(line));
    changed += lines.empty() ? 0 : 1;
  }
  const std::vector<ObjectId> wanted = IdsOf(objects);
  for (const ObjectId& id : before.objects) {
    if (std::ranges::find(wanted, id) != wanted.end()) continue;
    fmt::print(out, "{}: deleted\n", id.Text());
    ++changed;
  }
  if (changed == 0) fmt::print(out, "no object changes\n");
  return Status::Ok();
}

Status Installer::CheckNothingInstalled() {
  RETURN_IF_ERROR(CheckServerVersion(api_));
  RETURN_IF_ERROR(CheckNoOperator(api_));
  ASSIGN_OR_RETURN(const std::optional<InstallationRecord> installed, FindInstallation(api_));
  if (!installed) return CheckNoHelmRelease(api_);
  return Error(Code::kAlreadyExists,
               "Tessera {} is installed: use \"tessera upgrade\", which keeps its settings, or "
               "replace them with \"tessera install --force\"; \"tessera status --wait\" waits "
               "until all works",
               installed->version);
}

Status Installer::DeleteHelmRecords() {
  if (!replaced_release_) return Status::Ok();
  ASSIGN_OR_RETURN(const std::vector<ObjectId> records, HelmRecordsOf(api_, *replaced_release_));
  for (const ObjectId& id : records) RETURN_IF_ERROR(api_.Delete(id));
  if (!records.empty()) {
    fmt::print(out_, "release {} of Helm: its objects are taken over, its record is deleted\n",
               Printable(replaced_release_->name));
  }
  return Status::Ok();
}

Status Installer::Install(const Json& spec, bool force) {
  ASSIGN_OR_RETURN(std::vector<Json> objects, ObjectsToInstall(spec));
  RETURN_IF_ERROR(lock_.Acquire("tessera install"));
  InstallationRecord before;
  if (force) {
    RETURN_IF_ERROR(CheckServerVersion(api_));
    RETURN_IF_ERROR(CheckNoOperator(api_));
    // A damaged inventory does not matter: the objects are also found by their label.
    before = FindInstallation(api_).value_or(std::nullopt).value_or(InstallationRecord{});
    ASSIGN_OR_RETURN(replaced_release_, FindHelmRelease(api_));
  } else {
    RETURN_IF_ERROR(CheckNothingInstalled());
  }
  InstallationRecord next{.version = std::string(kTesseraVersion), .spec = spec};
  RETURN_IF_ERROR(WaitForNamespaceDeletion(api_, lock_, out_, waits_.timeout));
  ASSIGN_OR_RETURN(const std::optional<Json> ns, api_.Find(IdOf(objects.front())));
  next.owns_namespace = before.owns_namespace || !ns;
  RETURN_IF_ERROR(SkipObjectsOfOthers(&objects));
  return Apply(before, std::move(next), objects);
}

Status Installer::Upgrade(const Json& changes, bool reset, bool dry_run) {
  if (!dry_run) RETURN_IF_ERROR(lock_.Acquire("tessera upgrade"));
  RETURN_IF_ERROR(CheckServerVersion(api_));
  RETURN_IF_ERROR(CheckNoOperator(api_));
  ASSIGN_OR_RETURN(const std::optional<InstallationRecord> before, FindInstallation(api_));
  if (!before) {
    RETURN_IF_ERROR(CheckNoHelmRelease(api_));
    return Error(Code::kNotFound,
                 "Tessera is not installed: {} is missing: use \"tessera install\"",
                 InventoryId().Text());
  }
  InstallationRecord next{.version = std::string(kTesseraVersion),
                          .spec = reset ? changes : CombineSpecs(before->spec, changes),
                          .objects = {},
                          .owns_namespace = before->owns_namespace};
  ASSIGN_OR_RETURN(std::vector<Json> objects, ObjectsToInstall(next.spec));
  RETURN_IF_ERROR(SkipObjectsOfOthers(&objects));
  RETURN_IF_ERROR(PrintChanges(api_, out_, *before, next.spec, objects));
  if (dry_run) return Status::Ok();
  return Apply(*before, std::move(next), objects);
}

// Removes RuntimeClass "nvidia" from `objects` if the cluster's RuntimeClass has an owner, such as
// NVIDIA's ClusterPolicy, because that RuntimeClass is deleted together with its owner. Prints
// which nodes NVIDIA's operator continues to manage.
Status Installer::SkipObjectsOfOthers(std::vector<Json>* objects) {
  ASSIGN_OR_RETURN(const std::vector<Json> policies,
                   api_.List("nvidia.com/v1", "ClusterPolicy", ""));
  if (!policies.empty()) {
    components::KeepOffNvidiaNodes(objects);
    fmt::print(out_,
               "ClusterPolicy {}: nodes that NVIDIA's operator manages get no agent until their "
               "label {} is false\n",
               IdOf(policies.front()).name, names::kLabelDeployDevicePlugin);
  }
  for (auto object = objects->begin(); object != objects->end(); ++object) {
    const ObjectId id = IdOf(*object);
    if (id.kind != "RuntimeClass") continue;
    ASSIGN_OR_RETURN(const std::optional<Json> current, api_.Find(id));
    if (!current) break;
    const Json::Array& owners = ItemsAt(*current, {"metadata", "ownerReferences"});
    if (owners.empty()) break;
    fmt::print(out_, "{}: left to its owner, {}\n", id.Text(),
               Printable(TextAt(owners.front(), {"name"})));
    objects->erase(object);
    break;
  }
  return Status::Ok();
}

Status Installer::Apply(const InstallationRecord& before, InstallationRecord next,
                        const std::vector<Json>& objects) {
  const MonotonicTime start = api_.Now();
  const std::vector<ObjectId> wanted = IdsOf(objects);
  RETURN_IF_ERROR(api_.Apply(objects.front(), /*dry_run=*/false).status());  // the namespace
  next.objects = UnionOf(wanted, before.objects);
  RETURN_IF_ERROR(api_.Apply(InventoryObject(next), /*dry_run=*/false).status());
  for (const Json& object : std::span(objects).subspan(1)) {
    RETURN_IF_ERROR(lock_.Renew());
    RETURN_IF_ERROR(api_.Apply(object, /*dry_run=*/false).status());
  }
  RETURN_IF_ERROR(Prune(before.objects, wanted));
  next.objects = wanted;
  RETURN_IF_ERROR(api_.Apply(InventoryObject(next), /*dry_run=*/false).status());
  RETURN_IF_ERROR(DeleteHelmRecords());
  lock_.Release();
  fmt::print(out_, "{} objects of Tessera {} applied\n", wanted.size(), kTesseraVersion);
  std::fflush(out_);
  if (!waits_.wait_until_ready) return Status::Ok();
  RETURN_IF_ERROR(WaitUntilReady(objects));
  fmt::print(out_, "ready after {:.1f} s\n", SecondsOf(api_.Now() - start));
  return Status::Ok();
}

Status Installer::Prune(const std::vector<ObjectId>& before, const std::vector<ObjectId>& wanted) {
  for (const ObjectId& id : before) {
    if (IsNamespace(id) || std::ranges::find(wanted, id) != wanted.end()) continue;
    RETURN_IF_ERROR(lock_.Renew());
    RETURN_IF_ERROR(api_.Delete(id));
  }
  return Status::Ok();
}

Status Installer::WaitUntilReady(const std::vector<Json>& objects) {
  std::string not_ready;
  Status wait_status = api_.WaitUntil(api_.Now() + waits_.timeout, [&]() -> Result<bool> {
    not_ready.clear();
    for (const Json& object : objects) {
      const ObjectId id = IdOf(object);
      if (id.kind != "DaemonSet" && id.kind != "Deployment") continue;
      ASSIGN_OR_RETURN(const Json current, api_.Get(id));
      not_ready = WhyNotRolledOut(current);
      if (!not_ready.empty()) return false;
    }
    return true;
  });
  if (wait_status.code() != Code::kDeadlineExceeded || not_ready.empty()) return wait_status;
  return Error(
      Code::kDeadlineExceeded,
      "{} after {:.0f} s: \"tessera status\" has the reason; the installation goes on without "
      "this command",
      not_ready, SecondsOf(waits_.timeout));
}

}  // namespace tessera::cli
