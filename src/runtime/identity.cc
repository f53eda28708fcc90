// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/identity.h"

#include <initializer_list>
#include <utility>

#include "api/names.h"
#include "src/grant/pod_cgroup.h"

namespace tessera::runtime {
namespace {

std::string First(const oci::ConfigDocument& document,
                  std::initializer_list<std::string_view> annotations) {
  for (const std::string_view name : annotations) {
    if (auto value = document.Annotation(name); value && !value->empty()) return *value;
  }
  return {};
}

}  // namespace

std::optional<Identity> FindIdentity(const oci::ConfigDocument& document) {
  const std::string path = document.CgroupsPath();
  const bool is_of_kubelet = path.find("kubepods") != std::string::npos;
  // podman writes these two CRI-O annotations too; Kubernetes engines always write others as well.
  const bool annotated = document.HasAnnotationPrefix(
      "io.kubernetes.", {"io.kubernetes.cri-o.Created", "io.kubernetes.cri-o.TTY"});
  if (!annotated && !is_of_kubelet) return std::nullopt;
  Identity identity;
  const std::string type = First(document, {names::kCriContainerType, names::kCrioContainerType});
  identity.is_sandbox = type == "sandbox";
  identity.pod_uid = Uid(First(document, {names::kCriSandboxUid, names::kCrioPodUid}));
  if (identity.pod_uid.empty() && is_of_kubelet) {
    if (auto cgroup = grant::ParsePodCgroup(path)) identity.pod_uid = std::move(cgroup->pod_uid);
  }
  identity.pod_namespace = First(document, {names::kCriSandboxNamespace, names::kCrioPodNamespace});
  identity.pod_name = First(document, {names::kCriSandboxName, names::kCrioPodName});
  identity.container = First(document, {names::kCriContainerName, names::kCrioContainerName});
  return identity;
}

}  // namespace tessera::runtime
