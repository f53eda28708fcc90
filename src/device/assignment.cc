// SPDX-License-Identifier: Apache-2.0
#include "src/device/assignment.h"

#include <algorithm>
#include <set>

#include "src/device/json_fields.h"
#include "src/device/plain_json.h"
#include "src/device/request.h"
#include "src/formats/json.h"

namespace tessera::device {
namespace {

constexpr size_t kMaxNameLength = 63;
constexpr size_t kMaxUuidLength = 96;

bool IsLowerOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// A DNS label, as Kubernetes requires for container names.
bool IsContainerName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameLength) return false;
  if (name.front() == '-' || name.back() == '-') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

// UUIDs become parts of environment variables and lists. Old drivers write the UUID of a slice as
// "MIG-GPU-…/1/0".
bool IsUuid(std::string_view uuid) {
  if (uuid.empty() || uuid.size() > kMaxUuidLength) return false;
  return std::all_of(uuid.begin(), uuid.end(), [](char c) {
    return IsLowerOrDigit(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '/' || c == '_';
  });
}

std::string PathOf(std::string_view container, size_t position) {
  return fmt::format("containers.{}[{}]", container, position);
}

Status CheckName(std::string_view name) {
  if (IsContainerName(name)) return Status::Ok();
  return Error(Code::kInvalidArgument, "containers: \"{}\" is not a valid container name",
               name.substr(0, kMaxNameLength));
}

Status CheckUuids(std::string_view container, const std::vector<DeviceShare>& shares) {
  std::set<std::string_view> seen;
  for (size_t i = 0; i < shares.size(); ++i) {
    const std::string& uuid = shares[i].uuid;
    if (!IsUuid(uuid)) {
      return Error(Code::kInvalidArgument, "{}.gpu: \"{}\" is not a UUID", PathOf(container, i),
                   uuid.substr(0, kMaxUuidLength));
    }
    if (!seen.insert(uuid).second) {
      return Error(Code::kInvalidArgument, "{}.gpu: {} occurs twice", PathOf(container, i), uuid);
    }
  }
  return Status::Ok();
}

Status CheckRange(std::string_view container, size_t position, std::string_view field,
                  int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return Status::Ok();
  return Error(Code::kInvalidArgument, "{}.{}: {} is not between 0 and {}",
               PathOf(container, position), field, value, max);
}

Status Check(const Assignment& assignment) {
  for (const auto& [name, shares] : assignment.containers) {
    RETURN_IF_ERROR(CheckName(name));
    RETURN_IF_ERROR(CheckUuids(name, shares));
    if (shares.empty()) return Error(Code::kInvalidArgument, "containers.{}: has no device", name);
    for (size_t i = 0; i < shares.size(); ++i) {
      RETURN_IF_ERROR(CheckRange(name, i, "milli", shares[i].compute.count(), kWholeGpu.count()));
      RETURN_IF_ERROR(
          CheckRange(name, i, "bytes", shares[i].memory.count(), kMaxShareMemory.count()));
    }
  }
  return Status::Ok();
}

Result<DeviceShare> DecodeShare(const Json& json, const std::string& path) {
  if (!json.is_object()) return Error(Code::kInvalidArgument, "{}: must be an object", path);
  const JsonFields fields(json, path + ".");
  for (const std::string_view key : {"gpu", "milli", "bytes"}) {
    RETURN_IF_ERROR(fields.CheckOnce(key));
  }
  DeviceShare share;
  if (!fields.Has("gpu")) return fields.Invalid("gpu", "is missing");
  RETURN_IF_ERROR(fields.ReadText("gpu", &share.uuid));
  ASSIGN_OR_RETURN(const int64_t milli, fields.RequiredNumber("milli", kWholeGpu.count()));
  share.compute = MilliGpu(milli);
  ASSIGN_OR_RETURN(const int64_t bytes, fields.RequiredNumber("bytes", kMaxShareMemory.count()));
  share.memory = Bytes(bytes);
  return share;
}

Result<std::vector<DeviceShare>> DecodeShares(std::string_view name, const Json& json) {
  if (!json.is_array()) {
    return Error(Code::kInvalidArgument, "containers.{}: must be an array, not {}", name,
                 KindName(json.kind()));
  }
  std::vector<DeviceShare> shares;
  for (const Json& item : json.items()) {
    ASSIGN_OR_RETURN(DeviceShare share, DecodeShare(item, PathOf(name, shares.size())));
    shares.push_back(std::move(share));
  }
  return shares;
}

}  // namespace

Result<std::string> EncodeAssignment(const Assignment& assignment) {
  RETURN_IF_ERROR(Check(assignment));
  Json containers = Json::MakeObject();
  for (const auto& [name, shares] : assignment.containers) {
    Json list = Json::MakeArray();
    for (const DeviceShare& share : shares) {
      list.Append(Json::MakeObject({{"gpu", Json::String(share.uuid)},
                                    {"milli", Json::Int(share.compute.count())},
                                    {"bytes", Json::Int(share.memory.count())}}));
    }
    // The map has each name once, so this skips the duplicate search of Set.
    containers.members().emplace_back(name, std::move(list));
  }
  std::string text = Json::MakeObject({{"version", Json::Int(kAssignmentVersion)},
                                       {"containers", std::move(containers)}})
                         .Serialize();
  if (text.size() > kMaxAssignmentBytes) {
    return Error(Code::kResourceExhausted, "{} bytes for {} containers are more than {}",
                 text.size(), assignment.containers.size(), kMaxAssignmentBytes);
  }
  return text;
}

std::vector<std::string> UuidsOf(const std::vector<DeviceShare>& shares) {
  std::vector<std::string> uuids;
  for (const DeviceShare& share : shares) uuids.push_back(share.uuid);
  return uuids;
}

Result<Assignment> DecodeAssignment(std::string_view text) {
  if (auto plain = ReadPlainAssignment(text); plain && Check(*plain).ok()) return *std::move(plain);
  ASSIGN_OR_RETURN(const Json json, ParseAnnotation(text, kMaxAssignmentBytes));
  const JsonFields fields(json, "");
  for (const std::string_view key : {"version", "containers"}) {
    RETURN_IF_ERROR(fields.CheckOnce(key));
  }
  RETURN_IF_ERROR(fields.CheckVersion(kAssignmentVersion));
  const Json* containers = json.Find("containers");
  if (containers == nullptr) return fields.Invalid("containers", "is missing");
  if (!containers->is_object()) {
    return fields.Invalid("containers", "must be an object, not {}", KindName(containers->kind()));
  }
  Assignment assignment;
  for (const auto& [name, shares] : containers->members()) {
    RETURN_IF_ERROR(CheckName(name));
    ASSIGN_OR_RETURN(std::vector<DeviceShare> decoded, DecodeShares(name, shares));
    if (!assignment.containers.emplace(name, std::move(decoded)).second) {
      return fields.Invalid("containers", "{} occurs twice", name);
    }
  }
  RETURN_IF_ERROR(Check(assignment));
  return assignment;
}

}  // namespace tessera::device
