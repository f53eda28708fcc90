// SPDX-License-Identifier: Apache-2.0
// Finds the resource of an apiVersion and a kind, such as "apps/v1" and "DaemonSet", by discovery
// from the API server, and remembers it.
//
// Serves types that are known only at run time; resources.h has the others. Threads: the client's
// runner. Callbacks run there, never inside the call, and never after the Operation or the catalog
// is destroyed. Ownership: the client outlives the catalog. A ResourceType refers to strings of the
// catalog, so it must not be used after the catalog is destroyed. Cost: one request per group and
// version. A kind that was not found costs one more request each time, because its definition may
// have been created in the meantime.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/kube/resources.h"

namespace tessera::kube {

class TypeCatalog {
 public:
  using OnType = std::function<void(Result<ResourceType>)>;

  explicit TypeCatalog(Client& client);
  ~TypeCatalog();
  TypeCatalog(const TypeCatalog&) = delete;
  TypeCatalog& operator=(const TypeCatalog&) = delete;

  // NOT_FOUND if the server has no such type; the message names the missing definition.
  Operation Find(std::string_view api_version, std::string_view kind, OnType on_done);
  // The type of `object`. INVALID_ARGUMENT without apiVersion or kind.
  Operation FindFor(const Json& object, OnType on_done);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tessera::kube
