// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/helm_release.h"

#include "api/names.h"

namespace tessera::cli {

Result<std::optional<HelmRelease>> FindHelmRelease(ClusterClient& api) {
  const std::string ns(names::kSystemNamespace);
  const std::vector<Result<Json>> found =
      api.GetMetadata({{"apps/v1", "DaemonSet", ns, std::string(names::kAgent)},
                       {"apps/v1", "Deployment", ns, std::string(names::kScheduler)},
                       {"rbac.authorization.k8s.io/v1", "ClusterRole", "", "tessera-view"}});
  for (const Result<Json>& metadata : found) {
    if (metadata.status().code() == Code::kNotFound) continue;
    RETURN_IF_ERROR(metadata.status());
    HelmRelease release = HelmReleaseOf(*metadata);
    if (!release.name.empty()) return std::optional(std::move(release));
  }
  return std::optional<HelmRelease>();
}

Status CheckNoHelmRelease(ClusterClient& api) {
  ASSIGN_OR_RETURN(const std::optional<HelmRelease> release, FindHelmRelease(api));
  if (!release) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "Tessera is installed by Helm, as release {0}: use \"helm upgrade {0}\" or \"helm "
               "uninstall {0}\", or take its objects over with --force",
               release->name);
}

Result<std::vector<ObjectId>> HelmRecordsOf(ClusterClient& api, const HelmRelease& release) {
  std::vector<ObjectId> records;
  if (release.ns.empty()) return records;  // the list would cover all namespaces
  for (const char* kind : {"Secret", "ConfigMap"}) {
    ASSIGN_OR_RETURN(
        const std::vector<Json> objects,
        api.List("v1", kind, fmt::format("owner=helm,name={}", release.name), release.ns));
    for (const Json& object : objects) records.push_back(IdOf(object));
  }
  return records;
}

}  // namespace tessera::cli
