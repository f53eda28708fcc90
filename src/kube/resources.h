// SPDX-License-Identifier: Apache-2.0
// Types and references of API objects, and their paths. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "api/names.h"
#include "src/formats/json.h"

namespace tessera::kube {

struct ResourceType {
  std::string_view group;  // "" is the core group
  std::string_view version;
  std::string_view plural;
  bool namespaced;
};

inline constexpr ResourceType kNodes{"", "v1", "nodes", false};
inline constexpr ResourceType kNamespaces{"", "v1", "namespaces", false};
inline constexpr ResourceType kPods{"", "v1", "pods", true};
inline constexpr ResourceType kEvents{"", "v1", "events", true};
inline constexpr ResourceType kServices{"", "v1", "services", true};
inline constexpr ResourceType kConfigMaps{"", "v1", "configmaps", true};
inline constexpr ResourceType kSecrets{"", "v1", "secrets", true};
inline constexpr ResourceType kLeases{"coordination.k8s.io", "v1", "leases", true};
inline constexpr ResourceType kEndpointSlices{"discovery.k8s.io", "v1", "endpointslices", true};
inline constexpr ResourceType kDaemonSets{"apps", "v1", "daemonsets", true};
inline constexpr ResourceType kDeployments{"apps", "v1", "deployments", true};
inline constexpr ResourceType kRuntimeClasses{"node.k8s.io", "v1", "runtimeclasses", false};
inline constexpr ResourceType kPodDisruptionBudgets{"policy", "v1", "poddisruptionbudgets", true};
inline constexpr ResourceType kMutatingWebhooks{"admissionregistration.k8s.io", "v1",
                                                "mutatingwebhookconfigurations", false};
inline constexpr ResourceType kValidatingWebhooks{"admissionregistration.k8s.io", "v1",
                                                  "validatingwebhookconfigurations", false};
inline constexpr ResourceType kTesseras{names::kGroup, names::kCustomResourceVersion,
                                        names::kCustomResourcePlural, false};

// Identifies one object, or a subresource of it such as "status" or "binding".
struct ObjectRef {
  ResourceType type;
  std::string name;
  std::string ns;  // for namespaced types
  std::string subresource;
};

inline ObjectRef Node(std::string name) { return {kNodes, std::move(name), "", ""}; }
inline ObjectRef NodeStatus(std::string name) { return {kNodes, std::move(name), "", "status"}; }
inline ObjectRef Pod(std::string ns, std::string name) {
  return {kPods, std::move(name), std::move(ns), ""};
}

// "/api/v1/nodes/n1"; names are percent-encoded.
std::string PathOf(const ObjectRef& object);
// "/api/v1/namespaces/x/pods"; an empty `ns` means all namespaces.
std::string CollectionPath(const ResourceType& type, std::string_view ns);
// A new object with apiVersion, kind, name and namespace.
Json NewObject(const ObjectRef& object, std::string_view kind);

}  // namespace tessera::kube
