// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/identity.h"

#include <algorithm>
#include <initializer_list>

#include "api/names.h"

namespace tessera::runtime {
namespace {

constexpr size_t kUidLength = 36;

std::string First(const oci::ConfigDocument& document,
                  std::initializer_list<std::string_view> annotations) {
  for (const std::string_view name : annotations) {
    if (auto value = document.Annotation(name); value && !value->empty()) return *value;
  }
  return {};
}

bool IsUid(std::string_view text) {
  if (text.size() != kUidLength) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (dash ? text[i] != '-' : !hex) return false;
  }
  return true;
}

}  // namespace

std::string PodUidInCgroup(std::string_view path) {
  if (path.find("kubepods") == std::string_view::npos) return {};
  for (size_t at = path.find("pod"); at != std::string_view::npos; at = path.find("pod", at + 1)) {
    std::string uid(path.substr(at + 3, kUidLength));
    // systemd's slices use dashes for levels, so the UID has underscores there.
    std::replace(uid.begin(), uid.end(), '_', '-');
    if (IsUid(uid)) return uid;
  }
  return {};
}

std::optional<Identity> FindIdentity(const oci::ConfigDocument& document) {
  const std::string cgroup_uid = PodUidInCgroup(document.CgroupsPath());
  // podman borrows two names of CRI-O; each engine of Kubernetes writes others beside them.
  const bool annotated = document.HasAnnotationPrefix(
      "io.kubernetes.", {"io.kubernetes.cri-o.Created", "io.kubernetes.cri-o.TTY"});
  if (!annotated && document.CgroupsPath().find("kubepods") == std::string::npos) {
    return std::nullopt;
  }
  Identity identity;
  const std::string type =
      First(document, {names::kCriContainerType, names::kCrioContainerType});
  identity.is_sandbox = type == "sandbox";
  identity.pod_uid = First(document, {names::kCriSandboxUid, names::kCrioPodUid});
  if (identity.pod_uid.empty()) identity.pod_uid = cgroup_uid;
  identity.pod_namespace = First(document, {names::kCriSandboxNamespace, names::kCrioPodNamespace});
  identity.pod_name = First(document, {names::kCriSandboxName, names::kCrioPodName});
  identity.container = First(document, {names::kCriContainerName, names::kCrioContainerName});
  return identity;
}

}  // namespace tessera::runtime
