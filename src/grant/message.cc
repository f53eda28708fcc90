// SPDX-License-Identifier: Apache-2.0
#include "src/grant/message.h"

#include <utility>

#include "src/formats/json.h"

namespace tessera::grant {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = kMaxMessageSize, .max_depth = 8};
constexpr std::string_view kKindGrant = "grant";

Result<std::string> BoundedString(const Json& json, std::string_view key, size_t max) {
  ASSIGN_OR_RETURN(std::string value, json.StringAt(key));
  if (value.size() > max) {
    return Error(Code::kResourceExhausted, "{} has {} bytes, more than {}", key, value.size(), max);
  }
  return value;
}

Result<std::string> NonEmptyName(const Json& json, std::string_view key) {
  ASSIGN_OR_RETURN(std::string value, BoundedString(json, key, kMaxNameLength));
  if (value.empty()) return Error(Code::kInvalidArgument, "{} is empty", key);
  return value;
}

std::string OptionalString(const Json& json, std::string_view key) {
  const Json* value = json.Find(key);
  return value != nullptr && value->is_string() ? value->string_value() : std::string();
}

Result<const Json::Array*> OptionalArray(const Json& json, std::string_view key) {
  static const Json::Array empty;
  const Json* value = json.Find(key);
  if (value == nullptr || value->is_null()) return &empty;
  if (!value->is_array()) return Error(Code::kInvalidArgument, "{} is not a list", key);
  return &value->items();
}

Result<Token> DecodeToken(const Json& json) {
  if (!json.is_object()) return Status(Code::kInvalidArgument, "tokens: not an object");
  Token token;
  ASSIGN_OR_RETURN(token.variable, NonEmptyName(json, "variable"));
  ASSIGN_OR_RETURN(token.value, BoundedString(json, "value", kMaxTokenLength));
  return token;
}

Result<StringMap> DecodeVariables(const Json& json) {
  StringMap variables;
  const Json* object = json.Find("variables");
  if (object == nullptr) return variables;
  if (!object->is_object()) return Status(Code::kInvalidArgument, "variables: not an object");
  if (object->members().size() > kMaxVariables) {
    return Error(Code::kResourceExhausted, "{} variables, more than {}", object->members().size(),
                 kMaxVariables);
  }
  for (const auto& [name, value] : object->members()) {
    if (name.size() > kMaxNameLength) {
      return Error(Code::kResourceExhausted, "variables: name of {} bytes is too long",
                   name.size());
    }
    ASSIGN_OR_RETURN(variables[name],
                     BoundedString(*object, name, kMaxNameLength).Annotate("variables"));
  }
  return variables;
}

Json EncodeDevice(const GrantedDevice& device) {
  Json json = Json::MakeObject();
  json.Set("uuid", Json::String(device.uuid));
  json.Set("minor", Json::Int(device.minor));
  json.Set("path", Json::String(device.path));
  json.Set("host_path", Json::String(device.host_path));
  json.Set("major_number", Json::Int(device.major_number));
  json.Set("minor_number", Json::Int(device.minor_number));
  json.Set("milli", Json::Int(device.milli));
  json.Set("bytes", Json::Int(device.bytes));
  return json;
}

Result<uint32_t> DeviceNumber(const Json& json, std::string_view key) {
  ASSIGN_OR_RETURN(const int64_t value, json.IntAt(key));
  if (value < 0 || value > UINT32_MAX) {
    return Error(Code::kInvalidArgument, "{}: invalid device number {}", key, value);
  }
  return static_cast<uint32_t>(value);
}

// A missing member means no limit: earlier agents did not send it.
Result<int64_t> LimitAt(const Json& json, std::string_view key, int64_t absent, int64_t max) {
  if (json.Find(key) == nullptr) return absent;
  ASSIGN_OR_RETURN(const int64_t value, json.IntAt(key));
  if (value < 0 || value > max) {
    return Error(Code::kInvalidArgument, "{}: invalid value {}: want 0 to {}", key, value, max);
  }
  return value;
}

Result<GrantedDevice> DecodeDevice(const Json& json) {
  if (!json.is_object()) return Status(Code::kInvalidArgument, "devices: not an object");
  GrantedDevice device;
  ASSIGN_OR_RETURN(device.uuid, NonEmptyName(json, "uuid"));
  ASSIGN_OR_RETURN(const uint32_t minor, DeviceNumber(json, "minor"));
  device.minor = static_cast<int>(minor);
  ASSIGN_OR_RETURN(device.path, NonEmptyName(json, "path"));
  ASSIGN_OR_RETURN(device.host_path, NonEmptyName(json, "host_path"));
  ASSIGN_OR_RETURN(device.major_number, DeviceNumber(json, "major_number"));
  ASSIGN_OR_RETURN(device.minor_number, DeviceNumber(json, "minor_number"));
  ASSIGN_OR_RETURN(const int64_t milli, LimitAt(json, "milli", 1000, 1000));
  device.milli = static_cast<int>(milli);
  ASSIGN_OR_RETURN(device.bytes, LimitAt(json, "bytes", 0, INT64_MAX));
  return device;
}

Json EncodeMount(const GrantedMount& mount) {
  Json json = Json::MakeObject();
  json.Set("host", Json::String(mount.host));
  json.Set("container", Json::String(mount.container));
  json.Set("options", Json::Strings(mount.options));
  return json;
}

Result<GrantedMount> DecodeMount(const Json& json) {
  if (!json.is_object()) return Status(Code::kInvalidArgument, "mounts: not an object");
  GrantedMount mount;
  ASSIGN_OR_RETURN(mount.host, NonEmptyName(json, "host"));
  ASSIGN_OR_RETURN(mount.container, NonEmptyName(json, "container"));
  ASSIGN_OR_RETURN(const Json::Array* options, OptionalArray(json, "options"));
  for (const Json& option : *options) {
    if (!option.is_string()) return Status(Code::kInvalidArgument, "options: not a string");
    mount.options.push_back(option.string_value());
  }
  return mount;
}

Json EncodeGrant(const Grant& grant) {
  Json devices = Json::MakeArray();
  for (const GrantedDevice& device : grant.devices) devices.Append(EncodeDevice(device));
  Json mounts = Json::MakeArray();
  for (const GrantedMount& mount : grant.mounts) mounts.Append(EncodeMount(mount));
  Json json = Json::MakeObject();
  json.Set("devices", std::move(devices));
  json.Set("mounts", std::move(mounts));
  json.Set("env", Json::StringObject(grant.env));
  json.Set("driver_root", Json::String(grant.driver_root));
  json.Set("dev_root", Json::String(grant.dev_root));
  if (!grant.limits_dir.empty()) json.Set("limits_dir", Json::String(grant.limits_dir));
  json.Set("agent_version", Json::String(grant.agent_version));
  return json;
}

Result<Grant> DecodeGrant(const Json& json) {
  Grant grant;
  ASSIGN_OR_RETURN(const Json::Array* devices, OptionalArray(json, "devices"));
  for (const Json& item : *devices) {
    ASSIGN_OR_RETURN(GrantedDevice device, DecodeDevice(item));
    grant.devices.push_back(std::move(device));
  }
  ASSIGN_OR_RETURN(const Json::Array* mounts, OptionalArray(json, "mounts"));
  for (const Json& item : *mounts) {
    ASSIGN_OR_RETURN(GrantedMount mount, DecodeMount(item));
    grant.mounts.push_back(std::move(mount));
  }
  if (const Json* env = json.Find("env"); env != nullptr && env->is_object()) {
    for (const auto& [name, value] : env->members()) {
      if (!value.is_string()) return Error(Code::kInvalidArgument, "env: {} is not a string", name);
      grant.env[name] = value.string_value();
    }
  }
  grant.driver_root = OptionalString(json, "driver_root");
  grant.dev_root = OptionalString(json, "dev_root");
  grant.limits_dir = OptionalString(json, "limits_dir");
  grant.agent_version = OptionalString(json, "agent_version");
  return grant;
}

}  // namespace

std::string UuidsOf(const Grant& grant) {
  std::string uuids;
  for (const GrantedDevice& device : grant.devices) {
    uuids.append(uuids.empty() ? "" : ",").append(device.uuid);
  }
  return uuids;
}

std::string EncodeRequest(const GrantRequest& request) {
  Json json = Json::MakeObject();
  json.Set("kind", Json::String(kKindGrant));
  json.Set("pod_uid", Json::String(request.pod_uid.str()));
  json.Set("pod_namespace", Json::String(request.pod_namespace));
  json.Set("pod_name", Json::String(request.pod_name));
  json.Set("container", Json::String(request.container));
  Json tokens = Json::MakeArray();
  for (const Token& token : request.tokens) {
    Json item = Json::MakeObject();
    item.Set("variable", Json::String(token.variable));
    item.Set("value", Json::String(token.value));
    tokens.Append(std::move(item));
  }
  json.Set("tokens", std::move(tokens));
  if (!request.variables.empty()) json.Set("variables", Json::StringObject(request.variables));
  return json.Serialize();
}

Result<GrantRequest> DecodeRequest(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, kLimits).Annotate("grant request"));
  if (!json.is_object()) return Status(Code::kInvalidArgument, "grant request: not an object");
  GrantRequest request;
  ASSIGN_OR_RETURN(const std::string kind, json.StringAt("kind"));

  if (kind != kKindGrant) {
    return Error(Code::kUnimplemented, "grant request: unknown kind \"{:.32}\"", kind);
  }
  ASSIGN_OR_RETURN(std::string pod_uid, NonEmptyName(json, "pod_uid"));
  request.pod_uid = Uid(std::move(pod_uid));
  ASSIGN_OR_RETURN(request.pod_namespace, NonEmptyName(json, "pod_namespace"));
  ASSIGN_OR_RETURN(request.pod_name, NonEmptyName(json, "pod_name"));
  ASSIGN_OR_RETURN(request.container, NonEmptyName(json, "container"));
  ASSIGN_OR_RETURN(const Json::Array* tokens, OptionalArray(json, "tokens"));
  if (tokens->size() > kMaxTokens) {
    return Error(Code::kResourceExhausted, "grant request: {} tokens, more than {}", tokens->size(),
                 kMaxTokens);
  }
  for (const Json& item : *tokens) {
    ASSIGN_OR_RETURN(Token token, DecodeToken(item));
    request.tokens.push_back(std::move(token));
  }
  ASSIGN_OR_RETURN(request.variables, DecodeVariables(json));
  return request;
}

std::string EncodeReply(const Result<Grant>& reply) {
  if (reply.ok()) return EncodeGrant(*reply).Serialize();
  Json error = Json::MakeObject();
  error.Set("code", Json::String(InfoOf(reply.status().code()).name));
  error.Set("message", Json::String(reply.status().message()));
  Json json = Json::MakeObject();
  json.Set("error", std::move(error));
  return json.Serialize();
}

Result<Grant> DecodeReply(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, kLimits).Annotate("grant reply"));
  if (!json.is_object()) return Status(Code::kInvalidArgument, "grant reply: not an object");
  const Json* error = json.Find("error");
  if (error == nullptr || error->is_null()) return DecodeGrant(json).Annotate("grant reply");
  Code code = CodeFromName(OptionalString(*error, "code"));
  // An unknown error code of a newer agent is still an error.
  if (code == Code::kOk) code = Code::kUnknown;
  return Status(code, OptionalString(*error, "message"));
}

std::string Frame(std::string_view body) {
  TESSERA_CHECK(body.size() <= kMaxMessageSize);
  const uint32_t length = static_cast<uint32_t>(body.size());
  std::string frame;
  frame.reserve(kFrameHeaderSize + body.size());
  for (int shift = 0; shift < 32; shift += 8) {
    frame.push_back(static_cast<char>((length >> shift) & 0xff));
  }
  frame.append(body);
  return frame;
}

Result<size_t> FrameLength(const std::array<unsigned char, kFrameHeaderSize>& header) {
  size_t length = 0;
  for (size_t i = 0; i < kFrameHeaderSize; ++i) length |= static_cast<size_t>(header[i]) << (8 * i);
  if (length == 0) return Status(Code::kInvalidArgument, "the message has no bytes");
  if (length > kMaxMessageSize) {
    return Error(Code::kResourceExhausted, "message of {} bytes, want at most {}", length,
                 kMaxMessageSize);
  }
  return length;
}

}  // namespace tessera::grant
