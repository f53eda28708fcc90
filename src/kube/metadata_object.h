// SPDX-License-Identifier: Apache-2.0
// Objects of types that are known only at run time, for informers: their metadata, or the whole
// object as JSON. Also owner references and finalizers.
//
//   kube::Informer<kube::MetadataObject> informer(
//       client, {.type = type, .ns = ns, .label_selector = "app=x"}, {.manager = "m"}, handler);
//
// Threads: any number, on separate objects. Errors: INVALID_ARGUMENT names the field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"
#include "src/kube/raw_object.h"

namespace tessera::kube {

// The API server deletes an object after its owners. A cluster-scoped owner may own objects of any
// namespace. A namespaced owner may own only objects of its own namespace.
struct OwnerReference {
  std::string api_version;
  std::string kind;
  std::string name;
  Uid uid;
  bool controller = false;  // true for at most one owner of an object
  bool operator==(const OwnerReference&) const = default;
};

// The server sends only these fields: about 1 KB for an object of any size.
struct MetadataObject {
  ObjectMeta meta;
  int64_t generation = 0;  // 0: the type has none
  std::vector<OwnerReference> owners;
  std::vector<std::string> finalizers;
  // Digest of the fields that KeptFields::manager has applied and still owns; 0: no fields. The
  // digest changes if another manager changes or removes one of these fields, but not if the status
  // changes.
  uint64_t applied_fields = 0;

  static void Prepare(ListQuery* query);  // for Informer
  bool operator==(const MetadataObject&) const = default;
};

struct JsonObject {
  ObjectMeta meta;
  Json value;  // with metadata

  static void Prepare(ListQuery* query);  // for Informer
};

// `raw` may be only metadata or a whole object.
Status DecodeObject(const RawObject& raw, const KeptFields& kept, MetadataObject* out);
// INVALID_ARGUMENT if `raw` is not JSON.
Status DecodeObject(const RawObject& raw, const KeptFields& kept, JsonObject* out);

// Adds the owner, or replaces the reference that has the same uid. REQUIRES: `object` is a JSON
// object.
void SetOwner(Json* object, const OwnerReference& owner);

// A merge patch that sets the finalizers. It fails if the object no longer has this version.
Json FinalizersPatch(const std::vector<std::string>& finalizers, std::string_view resource_version);

}  // namespace tessera::kube
