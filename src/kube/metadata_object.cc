// SPDX-License-Identifier: Apache-2.0
#include "src/kube/metadata_object.h"

#include <algorithm>
#include <functional>

#include "src/formats/wire_reader.h"
#include "src/kube/object_decoders.h"

namespace tessera::kube {
namespace {

constexpr std::string_view kApplyOperation = "Apply";

// Both encodings carry the field set as the same JSON text. It is parsed, so that white space and
// escapes make no difference. The digest is never 0, because 0 means that there are no fields.
uint64_t DigestOf(const Json& fields) { return std::hash<std::string>()(fields.Serialize()) | 1; }

const Json* ArrayIn(const Json& metadata, std::string_view key) {
  const Json* list = metadata.Find(key);
  return list != nullptr && list->is_array() ? list : nullptr;
}

OwnerReference OwnerIn(const Json& owner) {
  return {.api_version = owner.StringAt("apiVersion").value_or(""),
          .kind = owner.StringAt("kind").value_or(""),
          .name = owner.StringAt("name").value_or(""),
          .uid = Uid(owner.StringAt("uid").value_or("")),
          .controller = owner.BoolAt("controller").value_or(false)};
}

void ReadMetadata(const Json& metadata, const KeptFields& kept, MetadataObject* out) {
  out->generation = metadata.IntAt("generation").value_or(0);
  if (const Json* owners = ArrayIn(metadata, "ownerReferences")) {
    for (const Json& owner : owners->items()) out->owners.push_back(OwnerIn(owner));
  }
  if (const Json* finalizers = ArrayIn(metadata, "finalizers")) {
    for (const Json& finalizer : finalizers->items()) {
      if (finalizer.is_string()) out->finalizers.push_back(finalizer.string_value());
    }
  }
  const Json* managers = kept.manager.empty() ? nullptr : ArrayIn(metadata, "managedFields");
  if (managers == nullptr) return;
  for (const Json& entry : managers->items()) {
    const Json* fields = entry.Find("fieldsV1");
    const bool is_own_apply = entry.StringAt("manager").value_or("") == kept.manager &&
                              entry.StringAt("operation").value_or("") == kApplyOperation &&
                              entry.StringAt("subresource").value_or("").empty();
    if (is_own_apply && fields != nullptr) out->applied_fields = DigestOf(*fields);
  }
}

// Field numbers: k8s.io/apimachinery, pkg/apis/meta/v1/generated.proto.
Status ReadOwner(std::string_view message, OwnerReference* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) out->kind = reader.Bytes();
    if (reader.field() == 3) out->name = reader.Bytes();
    if (reader.field() == 4) out->uid = Uid(reader.Bytes());
    if (reader.field() == 5) out->api_version = reader.Bytes();
    if (reader.field() == 6) out->controller = reader.Bool();
  }
  return reader.status();
}

Status ReadManager(std::string_view message, const KeptFields& kept, MetadataObject* out) {
  std::string_view manager, operation, fields, subresource;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) manager = reader.Bytes();
    if (reader.field() == 2) operation = reader.Bytes();
    if (reader.field() == 7) fields = reader.Bytes();
    if (reader.field() == 8) subresource = reader.Bytes();
  }
  RETURN_IF_ERROR(reader.status());
  if (manager != kept.manager || operation != kApplyOperation || !subresource.empty()) return {};
  WireReader raw(fields);
  while (raw.Next()) {
    if (raw.field() != 1) continue;
    ASSIGN_OR_RETURN(const Json json, ParseJson(raw.Bytes()));
    out->applied_fields = DigestOf(json);
  }
  return raw.status();
}

Status ReadMetadata(std::string_view message, const KeptFields& kept, MetadataObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    Status status;
    if (reader.field() == 7) out->generation = reader.Int();
    if (reader.field() == 13) status = ReadOwner(reader.Bytes(), &out->owners.emplace_back());
    if (reader.field() == 14) out->finalizers.emplace_back(reader.Bytes());
    if (reader.field() == 17 && !kept.manager.empty()) {
      status = ReadManager(reader.Bytes(), kept, out);
    }
    RETURN_IF_ERROR(status);
  }
  return reader.status();
}

}  // namespace

void MetadataObject::Prepare(ListQuery* query) {
  query->metadata_only = true;
  query->encoding = Encoding::kProtobuf;
}

void JsonObject::Prepare(ListQuery* query) { query->encoding = Encoding::kJson; }

Status DecodeObject(const RawObject& raw, const KeptFields& kept, MetadataObject* out) {
  if (raw.json() != nullptr) {
    RETURN_IF_ERROR(FromJson(*raw.json(), kept, &out->meta));
    const Json* metadata = raw.json()->Find("metadata");
    if (metadata != nullptr) ReadMetadata(*metadata, kept, out);
    return {};
  }
  RETURN_IF_ERROR(FromProtobuf(raw.message(), kept, &out->meta));
  WireReader object(raw.message());
  while (object.Next()) {
    if (object.field() == 1) RETURN_IF_ERROR(ReadMetadata(object.Bytes(), kept, out));
  }
  return object.status();
}

Status DecodeObject(const RawObject& raw, const KeptFields& kept, JsonObject* out) {
  if (raw.json() == nullptr) return Error(Code::kInvalidArgument, "the object is not JSON");
  RETURN_IF_ERROR(FromJson(*raw.json(), kept, &out->meta));
  out->value = *raw.json();
  return {};
}

void SetOwner(Json* object, const OwnerReference& owner) {
  Json reference = Json::MakeObject({{"apiVersion", Json::String(owner.api_version)},
                                     {"kind", Json::String(owner.kind)},
                                     {"name", Json::String(owner.name)},
                                     {"uid", Json::String(owner.uid.str())}});
  if (owner.controller) reference.Set("controller", Json::Bool(true));
  Json* metadata = object->EnsureObject("metadata").value();
  Json::Array& owners = metadata->EnsureArray("ownerReferences").value()->items();
  std::erase_if(owners, [&](const Json& other) {
    return other.StringAt("uid").value_or("") == owner.uid.str();
  });
  owners.push_back(std::move(reference));
}

Json FinalizersPatch(const std::vector<std::string>& finalizers,
                     std::string_view resource_version) {
  return Json::MakeObject(
      {{"metadata", Json::MakeObject({{"resourceVersion", Json::String(resource_version)},
                                      {"finalizers", Json::Strings(finalizers)}})}});
}

}  // namespace tessera::kube
