// SPDX-License-Identifier: Apache-2.0
#include "src/kube/type_catalog.h"

#include <utility>

#include "src/base/weak_ptr.h"
#include "src/net/http.h"

namespace tessera::kube {
namespace {

// "/api/v1" or "/apis/apps/v1".
std::string DiscoveryPath(std::string_view api_version) {
  if (api_version.find('/') == std::string_view::npos) {
    return "/api/" + net::PercentEncode(api_version);
  }
  const size_t slash = api_version.find('/');
  return fmt::format("/apis/{}/{}", net::PercentEncode(api_version.substr(0, slash)),
                     net::PercentEncode(api_version.substr(slash + 1)));
}

}  // namespace

struct TypeCatalog::Core {
  explicit Core(Client& c) : client(c) {}

  std::string_view Intern(std::string_view text) { return *texts.emplace(text).first; }

  const ResourceType* FindKnown(std::string_view api_version, std::string_view kind) const {
    const auto found = types.find({std::string(api_version), std::string(kind)});
    return found == types.end() ? nullptr : &found->second;
  }

  // Remembers the types in an APIResourceList. Subresources, such as "pods/status", have a '/'.
  void Remember(const std::string& api_version, const Json& list) {
    const Json* resources = list.Find("resources");
    if (resources == nullptr || !resources->is_array()) return;
    const size_t slash = api_version.find('/');
    const bool core = slash == std::string::npos;
    const std::string_view group = Intern(core ? "" : api_version.substr(0, slash));
    const std::string_view version = Intern(core ? api_version : api_version.substr(slash + 1));
    for (const Json& resource : resources->items()) {
      const std::string name = resource.StringAt("name").value_or("");
      const std::string kind = resource.StringAt("kind").value_or("");
      if (name.empty() || kind.empty() || name.find('/') != std::string::npos) continue;
      types.insert_or_assign({api_version, kind},
                             ResourceType{group, version, Intern(name),
                                          resource.BoolAt("namespaced").value_or(false)});
    }
  }

  Result<ResourceType> OnDiscovery(const std::string& api_version, const std::string& kind,
                                   const Result<Json>& list) {
    if (!list.ok() && list.status().code() != Code::kNotFound) {
      return list.status().Annotate(fmt::format("cannot find the type {} {}", api_version, kind));
    }
    if (list.ok()) Remember(api_version, *list);
    if (const ResourceType* known = FindKnown(api_version, kind)) return *known;
    return Error(
        Code::kNotFound,
        "the API server has no {} of {}: install its CustomResourceDefinition, or a server "
        "that has this version",
        kind, api_version);
  }

  // Posts a call of `on_done` with a known result.
  Operation Post(Result<ResourceType> type, OnType on_done) {
    const auto cancelled = std::make_shared<bool>(false);
    client.runner().Post(
        [cancelled, weak = weak.Get(), type = std::move(type), on_done = std::move(on_done)] {
          if (!*cancelled && weak) on_done(type);
        });
    return Operation([cancelled] { *cancelled = true; });
  }

  Client& client;
  std::set<std::string, std::less<>> texts;  // nodes of a set keep their address
  std::map<std::pair<std::string, std::string>, ResourceType> types;
  WeakPtrFactory<Core> weak{this};
};

TypeCatalog::TypeCatalog(Client& client) : core_(std::make_unique<Core>(client)) {}
TypeCatalog::~TypeCatalog() = default;

Operation TypeCatalog::Find(std::string_view api_version, std::string_view kind, OnType on_done) {
  if (api_version.empty() || kind.empty()) {
    return core_->Post(Error(Code::kInvalidArgument, "an object needs apiVersion and kind"),
                       std::move(on_done));
  }
  if (const ResourceType* known = core_->FindKnown(api_version, kind)) {
    return core_->Post(*known, std::move(on_done));
  }
  return core_->client.GetDocument(
      DiscoveryPath(api_version),
      [weak = core_->weak.Get(), api_version = std::string(api_version), kind = std::string(kind),
       on_done = std::move(on_done)](const Result<Json>& list) {
        if (weak) on_done(weak->OnDiscovery(api_version, kind, list));
      });
}

Operation TypeCatalog::FindFor(const Json& object, OnType on_done) {
  return Find(object.StringAt("apiVersion").value_or(""), object.StringAt("kind").value_or(""),
              std::move(on_done));
}

}  // namespace tessera::kube
