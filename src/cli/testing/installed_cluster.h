// SPDX-License-Identifier: Apache-2.0
// For tests: gives a fake API server the types and objects of an installation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/base/strings.h"
#include "src/cli/cluster_client.h"
#include "src/components/objects.h"
#include "src/kube/testing/fake_api_server.h"

namespace tessera::cli::testing {

inline std::string PluralOf(const std::string& kind) {
  const std::string lower = ToLower(kind);
  if (lower.ends_with("policy")) return lower.substr(0, lower.size() - 1) + "ies";
  return lower + (lower.ends_with("class") ? "es" : "s");
}

inline std::string GroupPath(const std::string& api_version) {
  return (api_version == "v1" ? "/api/" : "/apis/") + api_version;
}

inline std::string PathOf(const ObjectId& id) {
  return fmt::format("{}/{}{}/{}", GroupPath(id.api_version),
                     id.ns.empty() ? "" : fmt::format("namespaces/{}/", id.ns), PluralOf(id.kind),
                     id.name);
}

// The documents of discovery: the version, and all types that the commands use.
inline void PutDiscovery(kube::testing::FakeApiServer& server) {
  server.Put("/version", ParseJson(R"({"minor":"36","gitVersion":"v1.36.0"})").value());
  std::map<std::string, std::map<std::string, bool>> kinds{
      {"v1", {{"Namespace", false}, {"Node", false}, {"Pod", true}}},
      {"coordination.k8s.io/v1", {{"Lease", true}}},
      {"discovery.k8s.io/v1", {{"EndpointSlice", true}}}};
  std::vector<Json> objects = components::ObjectsOfEveryKind();
  objects.push_back(components::TesseraDefinition());
  for (const Json& object : objects) {
    const ObjectId id = IdOf(object);
    kinds[id.api_version][id.kind] = !id.ns.empty();
  }
  for (const auto& [api_version, resources] : kinds) {
    std::string list;
    for (const auto& [kind, namespaced] : resources) {
      list += fmt::format(R"({}{{"name":"{}","namespaced":{},"kind":"{}"}})",
                          list.empty() ? "" : ",", PluralOf(kind), namespaced, kind);
    }
    server.Put(GroupPath(api_version),
               ParseJson(fmt::format(R"({{"resources":[{}]}})", list)).value());
  }
}

inline void PutAll(kube::testing::FakeApiServer& server, const std::vector<Json>& objects) {
  for (const Json& object : objects) server.Put(PathOf(IdOf(object)), object);
}

// Adds the annotations that Helm sets on the objects of its release "gpus".
inline std::vector<Json> AsInstalledByHelm(std::vector<Json> objects) {
  for (Json& object : objects) {
    Json* annotations = object.Find("metadata")->EnsureObject("annotations").value();
    annotations->Set("meta.helm.sh/release-name", Json::String("gpus"));
    annotations->Set("meta.helm.sh/release-namespace", Json::String("tessera-system"));
  }
  return objects;
}

}  // namespace tessera::cli::testing
