// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/uninstaller.h"

#include <algorithm>
#include <set>
#include <utility>

#include "api/names.h"
#include "src/cli/gpu_pods.h"
#include "src/cli/install/helm_release.h"
#include "src/cli/install/installer.h"
#include "src/cli/install/rollout.h"
#include "src/cli/output/text.h"
#include "src/components/agent_written_fields.h"
#include "src/components/objects.h"
#include "src/formats/json.h"
#include "src/kube/resources.h"

namespace tessera::cli {
namespace {

constexpr const char* kPartOfSelector = names::kPartOfSelector.data();
// The label of the operator's own objects, in contrast to the objects that it installs.
constexpr const char* kOperatorSelector = "app.kubernetes.io/name=tessera-operator";
constexpr size_t kMaxListedPods = 10;

// Whether the object is the definition of resource Tessera. The definition is deleted last, because
// all resources of its type are deleted with it.
bool IsDefinition(const ObjectId& id) { return id.kind == "CustomResourceDefinition"; }

// Objects that Tessera makes at run time, without a label.
std::vector<ObjectId> RunTimeObjects() {
  const std::string ns(names::kSystemNamespace), scheduler(names::kScheduler);
  return {{"coordination.k8s.io/v1", "Lease", ns, scheduler},
          {"discovery.k8s.io/v1", "EndpointSlice", ns, scheduler},
          {"coordination.k8s.io/v1", "Lease", ns, std::string(names::kOperator)}};
}

// apiVersion and kind of all objects that may have been installed.
std::set<std::pair<std::string, std::string>> KindsOf(const std::vector<ObjectId>& known) {
  std::set<std::pair<std::string, std::string>> kinds;
  for (const Json& object : components::ObjectsOfEveryKind()) {
    const ObjectId id = IdOf(object);
    kinds.emplace(id.api_version, id.kind);
  }
  const ObjectId definition = IdOf(components::TesseraDefinition());
  kinds.emplace(definition.api_version, definition.kind);
  for (const ObjectId& id : known) kinds.emplace(id.api_version, id.kind);
  kinds.erase({"v1", "Namespace"});
  return kinds;
}

// Whether an installation has objects in the namespace; "" stands for cluster-scoped objects.
// Objects with the label in other namespaces are not Tessera's.
bool IsInstallationNamespace(std::string_view ns) {
  return ns.empty() || ns == names::kSystemNamespace || ns == "kube-system" || ns == "default";
}

}  // namespace

Status Uninstaller::Run() {
  if (!options_.dry_run) RETURN_IF_ERROR(lock_.Acquire("tessera uninstall"));
  ASSIGN_OR_RETURN(const std::optional<InstallationRecord> found, FindInstallation(api_));
  has_inventory_ = found.has_value();
  installation_ = found.value_or(InstallationRecord{.version = "", .spec = Json::MakeObject()});
  if (!found) RETURN_IF_ERROR(ReadSpecOfTesseraResource());
  // If this version rejects the stored settings, the defaults are used instead, so that an
  // installation can always be removed.
  settings_ = components::ParseSettings(installation_.spec)
                  .value_or(components::ParseSettings(Json::MakeObject()).value());
  if (!options_.force) {
    if (!found) RETURN_IF_ERROR(CheckNoHelmRelease(api_));
    // A dry run shows what would be removed without these pods.
    const Status no_pods = CheckNoGpuPods();
    if (!no_pods.ok() && !options_.dry_run) return no_pods;
    if (!no_pods.ok()) fmt::print(out_, "{}\n", no_pods.message());
  }
  if (!options_.dry_run) RETURN_IF_ERROR(DeleteTesseraResource());
  ASSIGN_OR_RETURN(const std::vector<ObjectId> objects, FindObjects());
  for (const ObjectId& id : objects) {
    if (options_.dry_run) fmt::print(out_, "{}: would be deleted\n", id.Text());
  }
  if (!options_.dry_run) RETURN_IF_ERROR(DeleteAll(objects));
  RETURN_IF_ERROR(RemoveNodeFields());
  if (options_.dry_run) {
    fmt::print(out_, "{}: would be deleted with all that is in it, if the installation made it\n",
               IdOf(components::SystemNamespace()).Text());
    return Status::Ok();
  }
  // The inventory is deleted last, because it records whether the installation made the namespace.
  RETURN_IF_ERROR(DeleteNamespace());
  RETURN_IF_ERROR(api_.Delete(InventoryId()));
  fmt::print(out_,
             "Tessera is removed. While kube-scheduler's configuration still names the extender, "
             "pods with GPUs wait: remove it there.\n");
  return Status::Ok();
}

Status Uninstaller::WaitUntil(const std::function<Result<bool>()>& is_done) {
  return api_.WaitUntil(api_.Now() + options_.wait_timeout, [&]() -> Result<bool> {
    RETURN_IF_ERROR(lock_.Renew());
    return is_done();
  });
}

Status Uninstaller::WaitUntilGone(const ObjectId& id) {
  return WaitUntil([&]() -> Result<bool> {
    ASSIGN_OR_RETURN(const std::optional<Json> object, api_.Find(id));
    return !object;
  });
}

// If the operator has installed Tessera, its resource has the settings.
Status Uninstaller::ReadSpecOfTesseraResource() {
  ASSIGN_OR_RETURN(const std::optional<Json> resource, api_.Find(TesseraResourceId()));
  if (!resource) return Status::Ok();
  const Json* spec = resource->Find("spec");
  if (spec != nullptr && spec->is_object()) installation_.spec = *spec;
  return Status::Ok();
}

Status Uninstaller::DeleteTesseraResource() {
  RETURN_IF_ERROR(api_.Delete(TesseraResourceId()));
  Status gone = WaitUntilGone(TesseraResourceId());
  if (gone.code() != Code::kDeadlineExceeded) return gone;
  return Error(Code::kDeadlineExceeded,
               "{} stays: its operator does not remove its finalizer: check the pod of Deployment "
               "tessera-operator, or remove the finalizer and run this command again",
               TesseraResourceId().Text());
}

Status Uninstaller::CheckNoGpuPods() {
  ASSIGN_OR_RETURN(const std::vector<Json> pods, api_.List("v1", "Pod", ""));
  std::string names;
  size_t count = 0;
  for (const Json& pod : pods) {
    if (!HoldsGpus(pod)) continue;
    const ObjectId id = IdOf(pod);
    if (++count > kMaxListedPods) continue;
    names += fmt::format("{}{}/{}", names.empty() ? "" : ", ", id.ns, id.name);
  }
  if (count == 0) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "{} pod{} with GPUs on nodes: {}{}: delete them, or use --force: they keep running, "
               "but a container that restarts gets no GPU",
               count, Plural(count), Printable(names), count > kMaxListedPods ? ", ..." : "");
}

Result<std::vector<ObjectId>> Uninstaller::FindByLabel() {
  std::vector<ObjectId> found;
  for (const auto& [api_version, kind] : KindsOf(installation_.objects)) {
    for (const auto* selector : {kPartOfSelector, kOperatorSelector}) {
      ASSIGN_OR_RETURN(const std::vector<Json> objects, api_.List(api_version, kind, selector));
      for (const Json& object : objects) {
        ObjectId id = IdOf(object);
        if (IsInstallationNamespace(id.ns)) found.push_back(std::move(id));
      }
    }
  }
  return found;
}

Result<std::vector<ObjectId>> Uninstaller::FindHelmRecords() {
  ASSIGN_OR_RETURN(const std::optional<HelmRelease> release, FindHelmRelease(api_));
  if (!release) return std::vector<ObjectId>();
  return HelmRecordsOf(api_, *release);
}

Result<std::vector<ObjectId>> Uninstaller::FindObjects() {
  ASSIGN_OR_RETURN(std::vector<ObjectId> labeled, FindByLabel());
  // In the opposite order of an installation: agents are deleted before their rights.
  std::vector<ObjectId> order;
  for (const Json& object : components::RenderObjects(settings_)) order.push_back(IdOf(object));
  std::ranges::reverse(order);
  order = UnionOf(std::move(order), installation_.objects);
  std::vector<ObjectId> objects;
  for (const ObjectId& id : UnionOf(std::move(order), labeled)) {
    if (id.kind == "Namespace" || id == InventoryId()) continue;
    const bool exists = std::ranges::find(labeled, id) != labeled.end() ||
                        std::ranges::find(installation_.objects, id) != installation_.objects.end();
    if (exists) objects.push_back(id);
  }
  objects = UnionOf(std::move(objects), RunTimeObjects());
  ASSIGN_OR_RETURN(const std::vector<ObjectId> records, FindHelmRecords());
  objects = UnionOf(records, objects);
  std::ranges::stable_partition(objects, [](const ObjectId& id) { return !IsDefinition(id); });
  return objects;
}

Status Uninstaller::DeleteAll(const std::vector<ObjectId>& objects) {
  const auto delete_if = [&](bool definitions) -> Status {
    for (const ObjectId& id : objects) {
      if (IsDefinition(id) != definitions) continue;
      RETURN_IF_ERROR(lock_.Renew());
      RETURN_IF_ERROR(api_.Delete(id));
    }
    return Status::Ok();
  };
  RETURN_IF_ERROR(delete_if(false));
  RETURN_IF_ERROR(IgnoreTimeoutIfForced(WaitUntilPodsAreGone(kPartOfSelector)));
  fmt::print(out_, "{} objects deleted\n", objects.size());
  std::fflush(out_);
  RETURN_IF_ERROR(UndoEngineConfiguration());
  return delete_if(true);
}

Status Uninstaller::IgnoreTimeoutIfForced(const Status& wait_status) {
  if (!options_.force || wait_status.code() != Code::kDeadlineExceeded) return wait_status;
  fmt::print(out_, "continuing after {} s: {}\n",
             std::chrono::duration_cast<std::chrono::seconds>(options_.wait_timeout).count(),
             Printable(wait_status.message()));
  return Status::Ok();
}

Status Uninstaller::WaitUntilPodsAreGone(const std::string& label_selector) {
  Status wait_status = WaitUntil([&]() -> Result<bool> {
    ASSIGN_OR_RETURN(const std::vector<Json> pods,
                     api_.List("v1", "Pod", label_selector, std::string(names::kSystemNamespace)));
    return pods.empty();
  });
  if (wait_status.code() != Code::kDeadlineExceeded) return wait_status;
  return Error(
      wait_status.code(),
      "pods of Tessera do not end: check the nodes in \"kubectl -n {} get pods -o wide\", or "
      "continue without these pods with --force",
      names::kSystemNamespace);
}

Status Uninstaller::UndoEngineConfiguration() {
  const std::vector<Json> cleanup_sets = components::RenderCleanup(settings_);
  if (cleanup_sets.empty()) return Status::Ok();
  const ObjectId ns = IdOf(components::SystemNamespace());
  if (api_.Get(ns).status().code() == Code::kNotFound) {
    fmt::print(out_,
               "{} no longer exists, so no pod can clean the nodes: if a node still has "
               "tessera-runtime in its engine's configuration, run \"tessera-runtime configure "
               "--undo\" there\n",
               ns.Text());
    return Status::Ok();
  }
  for (const Json& cleanup_set : cleanup_sets)
    RETURN_IF_ERROR(api_.Apply(cleanup_set, /*dry_run=*/false).status());
  std::string missing;
  Status cleaned = WaitUntil([&]() -> Result<bool> {
    for (const Json& cleanup_set : cleanup_sets) {
      ASSIGN_OR_RETURN(const Json current, api_.Get(IdOf(cleanup_set)));
      missing = WhyNotRolledOut(current);
      if (!missing.empty()) return false;
    }
    return true;
  });
  if (cleaned.code() == Code::kDeadlineExceeded) {
    cleaned =
        Error(Code::kDeadlineExceeded,
              "tessera-runtime is still in the engine's configuration of some nodes: {}: see "
              "\"kubectl -n {} logs -c undo daemonset/tessera-cleanup\", and run this command "
              "again, or with --force without these nodes",
              missing, names::kSystemNamespace);
  }
  RETURN_IF_ERROR(IgnoreTimeoutIfForced(cleaned));
  for (const Json& cleanup_set : cleanup_sets) RETURN_IF_ERROR(api_.Delete(IdOf(cleanup_set)));
  if (cleaned.ok()) {
    fmt::print(out_, "tessera-runtime taken out of the engines' configurations\n");
  }
  std::fflush(out_);
  return IgnoreTimeoutIfForced(WaitUntilPodsAreGone(kPartOfSelector));
}

Status Uninstaller::PatchIfExists(const kube::ObjectRef& object, kube::PatchKind kind,
                                  const Json& patch) {
  const Status status = api_.Patch(object, kind, patch);
  return status.code() == Code::kNotFound ? Status::Ok() : status;
}

Status Uninstaller::RemoveNodeFields() {
  ASSIGN_OR_RETURN(const std::vector<Json> nodes, api_.List("v1", "Node", ""));
  size_t cleaned = 0;
  for (const Json& node : nodes) {
    const std::string name = IdOf(node).name;
    const components::AgentWrittenFields fields = components::AgentWrittenFieldsOf(node);
    if (fields.empty()) continue;
    ++cleaned;
    RETURN_IF_ERROR(lock_.Renew());
    if (options_.dry_run) {
      fmt::print(out_, "Node {}: would lose {} labels, {} annotations, {} conditions\n", name,
                 fields.labels.size(), fields.annotations.size(), fields.conditions.size());
      continue;
    }
    if (const auto patch = components::NodeCleanupPatch(fields)) {
      RETURN_IF_ERROR(PatchIfExists(kube::Node(name), kube::PatchKind::kMerge, *patch));
    }
    if (const auto patch = components::NodeStatusCleanupPatch(fields)) {
      RETURN_IF_ERROR(
          PatchIfExists(kube::NodeStatus(name), kube::PatchKind::kStrategicMerge, *patch));
    }
  }
  if (!options_.dry_run) fmt::print(out_, "{} node{} cleaned\n", cleaned, Plural(cleaned));
  return Status::Ok();
}

Status Uninstaller::DeleteNamespace() {
  const Json ns = components::SystemNamespace();
  const ObjectId id = IdOf(ns);
  ASSIGN_OR_RETURN(const std::optional<Json> current, api_.Find(id));
  if (!current) return Status::Ok();
  // Without an inventory, the label shows whether an installation created the namespace.
  const bool is_labeled =
      TextAt(*current, {"metadata", "labels", "app.kubernetes.io/part-of"}) == "tessera";
  if (!has_inventory_ && !is_labeled) return Status::Ok();
  if (has_inventory_ && !installation_.owns_namespace) {
    // Server-side apply without labels removes the labels that the installation gave the namespace.
    const Json bare =
        Json::MakeObject({{"apiVersion", Json::String(id.api_version)},
                          {"kind", Json::String(id.kind)},
                          {"metadata", Json::MakeObject({{"name", Json::String(id.name)}})}});
    return api_.Apply(bare, /*dry_run=*/false).status();
  }
  RETURN_IF_ERROR(api_.Delete(id));
  return IgnoreTimeoutIfForced(WaitUntilGone(id).Annotate(id.Text()));
}

}  // namespace tessera::cli
