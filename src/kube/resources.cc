// SPDX-License-Identifier: Apache-2.0
#include "src/kube/resources.h"

#include <fmt/format.h>

#include "src/net/http.h"

namespace tessera::kube {

std::string CollectionPath(const ResourceType& type, std::string_view ns) {
  std::string path = type.group.empty() ? fmt::format("/api/{}", type.version)
                                        : fmt::format("/apis/{}/{}", type.group, type.version);
  if (type.namespaced && !ns.empty()) path += "/namespaces/" + net::PercentEncode(ns);
  return path.append("/").append(type.plural);
}

std::string PathOf(const ObjectRef& object) {
  std::string path = CollectionPath(object.type, object.ns) + "/" + net::PercentEncode(object.name);
  if (!object.subresource.empty()) path += "/" + object.subresource;
  return path;
}

Json NewObject(const ObjectRef& object, std::string_view kind) {
  std::string api_version(object.type.version);
  if (!object.type.group.empty()) api_version.insert(0, fmt::format("{}/", object.type.group));
  Json metadata = Json::MakeObject({{"name", Json::String(object.name)}});
  if (!object.ns.empty()) metadata.Set("namespace", Json::String(object.ns));
  return Json::MakeObject({{"apiVersion", Json::String(api_version)},
                           {"kind", Json::String(kind)},
                           {"metadata", std::move(metadata)}});
}

}  // namespace tessera::kube
