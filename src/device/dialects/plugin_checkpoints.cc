// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects/plugin_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "api/names.h"
#include "src/device/dialects/annotation_values.h"
#include "src/formats/base64.h"
#include "src/formats/json.h"
#include "src/formats/wire_reader.h"

namespace tessera::device {
namespace {

constexpr JsonLimits kLimits = {.max_bytes = kMaxCheckpointBytes, .max_depth = 16};
// More GPUs than any node has.
constexpr size_t kMaxGpus = 64;
// How many bytes of the file an error may quote.
constexpr size_t kMaxQuoteBytes = 64;

template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Code::kInvalidArgument, format, std::forward<Args>(args)...);
}

// Keeps the first error and counts the others.
class Problems {
 public:
  void Add(const Status& status) {
    if (status.ok()) return;
    if (first_.ok()) first_ = status;
    ++count_;
  }
  Status status() const {
    return count_ <= 1
               ? first_
               : InvalidArgument("{}; {} more entries are invalid", first_.message(), count_ - 1);
  }

 private:
  Status first_;
  size_t count_ = 0;
};

std::optional<int> ParseMinor(std::string_view text) {
  int minor = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), minor);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && minor >= 0 && minor <= dialects::kMaxIndex ? std::optional(minor) : std::nullopt;
}

// The minor number in "/dev/nvidia0"; nullopt for other devices, such as /dev/nvidiactl.
std::optional<int> MinorOfPath(std::string_view path) {
  constexpr std::string_view kPrefix = "/dev/nvidia";
  return path.starts_with(kPrefix) ? ParseMinor(path.substr(kPrefix.size())) : std::nullopt;
}

Status AddMinor(int minor, std::vector<int>* minors) {
  if (std::find(minors->begin(), minors->end(), minor) != minors->end()) return Status::Ok();
  if (minors->size() == kMaxGpus) return InvalidArgument("names more than {} GPUs", kMaxGpus);
  minors->push_back(minor);
  return Status::Ok();
}

// The value of `field`, which may occur at most once in `message`; empty if it is missing.
Result<std::string_view> TextAt(std::string_view message, uint32_t field) {
  std::string_view text;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == field) text = reader.Bytes();
  }
  RETURN_IF_ERROR(reader.status());
  return text;
}

// If the environment variable `entry` is gpushare's, adds the GPU that it names.
Status AddVariable(std::string_view entry, std::vector<int>* minors) {
  constexpr uint32_t kKey = 1, kValue = 2;
  ASSIGN_OR_RETURN(const std::string_view key, TextAt(entry, kKey));
  if (key != names::kEnvGpuMemIndex) return Status::Ok();
  ASSIGN_OR_RETURN(const std::string_view value, TextAt(entry, kValue));
  if (value == "-1") return Status::Ok();  // gpushare's answer to a rejected pod
  const std::optional<int> minor = ParseMinor(value);
  if (minor) return AddMinor(*minor, minors);
  return InvalidArgument("{}: \"{}\" is not the minor number of a GPU", key,
                         value.substr(0, kMaxQuoteBytes));
}

// The GPUs in a ContainerAllocateResponse of the device plugin API: gpu-manager names GPUs by
// device nodes, gpushare by a variable.
Result<std::vector<int>> MinorsOfAnswer(std::string_view answer, std::string_view resource) {
  // Field numbers of ContainerAllocateResponse, and of DeviceSpec.
  constexpr uint32_t kEnvs = 1, kDevices = 3, kAnnotations = 4;
  constexpr uint32_t kHostPath = 2;
  const bool by_device_node = resource == names::kResourceVcudaCore;
  std::vector<int> minors;
  WireReader reader(answer);
  while (reader.Next()) {
    if (by_device_node && reader.field() == kDevices) {
      ASSIGN_OR_RETURN(const std::string_view path, TextAt(reader.Bytes(), kHostPath));
      if (const auto minor = MinorOfPath(path)) RETURN_IF_ERROR(AddMinor(*minor, &minors));
    }
    if (!by_device_node && reader.field() == kEnvs)
      RETURN_IF_ERROR(AddVariable(reader.Bytes(), &minors));
    if (reader.field() == kAnnotations) {
      ASSIGN_OR_RETURN(const std::string_view key, TextAt(reader.Bytes(), 1));
      // An answer of Tessera's agent, which its journal has. Earlier versions marked such answers
      // by kAnnotationAssignment.
      if (key == names::kAnnotationAllocated || key == names::kAnnotationAssignment) {
        return std::vector<int>();
      }
    }
  }
  RETURN_IF_ERROR(reader.status());
  return minors;
}

Status AddEntry(const Json& entry, AllocatedMinors* allocated) {
  if (!entry.is_object())
    return InvalidArgument("must be an object, not {}", KindName(entry.kind()));
  ASSIGN_OR_RETURN(const std::string resource, entry.StringAt("ResourceName"));
  if (resource != names::kResourceVcudaCore && resource != names::kResourceGpuMem) return {};
  ASSIGN_OR_RETURN(std::string uid, entry.StringAt("PodUID"));
  ASSIGN_OR_RETURN(std::string container, entry.StringAt("ContainerName"));
  const Json* answer = entry.Find("AllocResp");
  if (answer == nullptr || answer->is_null()) return {};
  // The plugin's answer as protobuf; Go writes bytes into JSON as base64.
  ASSIGN_OR_RETURN(const std::string text, entry.StringAt("AllocResp"));
  ASSIGN_OR_RETURN(const std::string bytes, Base64Decode(text).Annotate("AllocResp"));
  ASSIGN_OR_RETURN(std::vector<int> minors, MinorsOfAnswer(bytes, resource).Annotate("AllocResp"));
  if (!minors.empty()) {
    allocated->try_emplace({Uid(std::move(uid)), std::move(container)}, std::move(minors));
  }
  return {};
}

Result<std::vector<int>> MinorsOfDevices(const Json& container) {
  if (!container.is_object())
    return InvalidArgument("must be an object, not {}", KindName(container.kind()));
  const Json* devices = container.Find("Devices");
  if (devices == nullptr || !devices->is_array()) return InvalidArgument("Devices must be a list");
  std::vector<int> minors;
  for (const Json& device : devices->items()) {
    const auto minor = device.is_string() ? MinorOfPath(device.string_value()) : std::nullopt;
    if (!minor) {
      return InvalidArgument("Devices: {} is not the device node of a GPU",
                             device.Serialize().substr(0, kMaxQuoteBytes));
    }
    RETURN_IF_ERROR(AddMinor(*minor, &minors));
  }
  return minors;
}

}  // namespace

Status AddKubeletCheckpoint(std::string_view text, AllocatedMinors* allocated) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, kLimits));
  const Json* data = json.is_object() ? json.Find("Data") : nullptr;
  const Json& body = data != nullptr ? *data : json;
  const Json* entries = body.is_object() ? body.Find("PodDeviceEntries") : nullptr;
  if (entries == nullptr) return InvalidArgument("PodDeviceEntries is missing");
  if (entries->is_null()) return Status::Ok();  // the kubelet has allocated no device
  if (!entries->is_array()) return InvalidArgument("PodDeviceEntries must be a list");
  Problems problems;
  for (size_t i = 0; i < entries->items().size(); ++i) {
    problems.Add(
        AddEntry(entries->items()[i], allocated).Annotate(fmt::format("PodDeviceEntries[{}]", i)));
  }
  return problems.status();
}

Status AddGpuManagerCheckpoint(std::string_view text, AllocatedMinors* allocated) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, kLimits));
  const Json* pods = json.is_object() ? json.Find("PodGPUMapping") : nullptr;
  if (pods == nullptr) return InvalidArgument("PodGPUMapping is missing");
  if (pods->is_null()) return Status::Ok();
  if (!pods->is_object()) return InvalidArgument("PodGPUMapping must be an object");
  Problems problems;
  for (const auto& [uid, containers] : pods->members()) {
    const std::string pod = fmt::format("PodGPUMapping, pod \"{}\"", uid.substr(0, kMaxQuoteBytes));
    if (!containers.is_object()) {
      problems.Add(
          InvalidArgument("{}: must be an object, not {}", pod, KindName(containers.kind())));
      continue;
    }
    for (const auto& [name, container] : containers.members()) {
      Result<std::vector<int>> minors = MinorsOfDevices(container);
      problems.Add(minors.status().Annotate(
          fmt::format("{}, container \"{}\"", pod, name.substr(0, kMaxQuoteBytes))));
      if (minors.ok() && !minors->empty())
        allocated->try_emplace({Uid(uid), name}, *std::move(minors));
    }
  }
  return problems.status();
}

}  // namespace tessera::device
