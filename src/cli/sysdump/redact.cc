// SPDX-License-Identifier: Apache-2.0
#include "src/cli/sysdump/redact.h"

#include <algorithm>
#include <initializer_list>
#include <regex>

#include "api/names.h"
#include "src/base/strings.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kOmitted = "<omitted>";

bool IsOfGpuSystems(std::string_view key) {
  static constexpr std::string_view kPrefixes[] = {names::kAnnotationPrefix,
                                                   "nvidia.com/",
                                                   "ALIYUN_COM_",
                                                   "aliyun.com/",
                                                   "tencent.com/",
                                                   "gaia.tencent.com/",
                                                   "cgpu.",
                                                   "scheduler.framework.gpushare."};
  return std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return key.starts_with(prefix); });
}

Json PickMembers(const Json& object, std::initializer_list<std::string_view> keys) {
  Json picked = Json::MakeObject();
  for (const std::string_view key : keys) {
    if (const Json* value = object.Find(key)) picked.Set(key, *value);
  }
  return picked;
}

// Metadata whose annotations are only those of GPU systems.
Json ReducedMetadata(const Json& object) {
  const Json* metadata = object.Find("metadata");
  if (metadata == nullptr) return Json::MakeObject();
  Json reduced = PickMembers(*metadata, {"name", "namespace", "uid", "labels", "creationTimestamp",
                                         "deletionTimestamp", "ownerReferences"});
  Json annotations = Json::MakeObject();
  for (const auto& [key, value] : MembersAt(*metadata, {"annotations"})) {
    if (IsOfGpuSystems(key)) annotations.Set(key, value);
  }
  reduced.Set("annotations", std::move(annotations));
  return reduced;
}

bool SuggestsSecret(std::string_view name) {
  const std::string lower = ToLower(name);
  for (const char* word : {"token", "secret", "password", "passwd", "credential", "apikey",
                           "api_key", "api-key", "private", "access_key", "access-key", "auth"}) {
    if (lower.find(word) != std::string::npos) return true;
  }
  return false;
}

// Omits the value of --name=value and of NAME=value.
Json ReducedArgument(const Json& argument) {
  if (!argument.is_string()) return argument;
  const std::string& text = argument.string_value();
  const size_t equals = text.find('=');
  if (equals == std::string::npos || !SuggestsSecret(std::string_view(text).substr(0, equals))) {
    return argument;
  }
  return Json::String(text.substr(0, equals + 1) + std::string(kOmitted));
}

// The message of an ended container may be the end of its log (terminationMessagePolicy).
Json WithoutMessages(const Json& status) {
  if (status.is_array()) {
    Json list = Json::MakeArray();
    for (const Json& item : status.items()) list.Append(WithoutMessages(item));
    return list;
  }
  if (!status.is_object()) return status;
  Json reduced = Json::MakeObject();
  for (const auto& [key, value] : status.members()) {
    if (key == "terminated" && value.is_object()) {
      Json ended = value;
      const std::string why = ended.StringAt("reason").value_or("");
      if (why != "StartError" && why != "ContainerCannotRun") ended.Erase("message");
      reduced.Set(key, std::move(ended));
    } else {
      reduced.Set(key, WithoutMessages(value));
    }
  }
  return reduced;
}

}  // namespace

Json ReducedPod(const Json& pod) {
  Json spec = Json::MakeObject();
  if (const Json* all = pod.Find("spec")) {
    spec = PickMembers(
        *all, {"nodeName", "runtimeClassName", "schedulerName", "priorityClassName", "priority",
               "nodeSelector", "tolerations", "schedulingGates", "restartPolicy"});
    for (const char* list : {"initContainers", "containers"}) {
      Json containers = Json::MakeArray();
      for (const Json& container : ItemsAt(*all, {list})) {
        containers.Append(PickMembers(container, {"name", "image", "resources"}));
      }
      spec.Set(list, std::move(containers));
    }
  }
  const Json* status = pod.Find("status");
  return Json::MakeObject(
      {{"metadata", ReducedMetadata(pod)},
       {"spec", std::move(spec)},
       {"status", status == nullptr ? Json::MakeObject()
                                    : WithoutMessages(PickMembers(
                                          *status, {"phase", "reason", "conditions",
                                                    "containerStatuses", "initContainerStatuses",
                                                    "nominatedNodeName", "startTime"}))}});
}

Json ReducedNode(const Json& node) {
  const Json* status = node.Find("status");
  const Json* spec = node.Find("spec");
  return Json::MakeObject(
      {{"metadata", ReducedMetadata(node)},
       {"spec",
        spec == nullptr ? Json::MakeObject() : PickMembers(*spec, {"unschedulable", "taints"})},
       {"status", status == nullptr ? Json::MakeObject()
                                    : PickMembers(*status, {"capacity", "allocatable", "conditions",
                                                            "nodeInfo"})}});
}

// Removes tokens from a text. A text that is itself JSON, as in a ConfigMap, becomes a JSON value
// without secrets.
Json TextWithoutSecrets(const std::string& text) {
  const Result<Json> inner = ParseJson(text);
  const bool is_object = inner.ok() && (inner->is_object() || inner->is_array());
  return Json::String(is_object ? WithoutSecrets(*inner).Serialize() : WithoutTokens(text));
}

Json ReducedArguments(const Json& list) {
  Json arguments = Json::MakeArray();
  bool omit_next = false;
  for (const Json& argument : list.items()) {
    arguments.Append(omit_next ? Json::String(kOmitted) : ReducedArgument(argument));
    const std::string text = argument.is_string() ? argument.string_value() : "";
    omit_next =
        text.starts_with("-") && text.find('=') == std::string::npos && SuggestsSecret(text);
  }
  return arguments;
}

Json WithoutSecrets(const Json& object) {
  if (object.is_string()) return TextWithoutSecrets(object.string_value());
  if (object.is_array()) {
    Json list = Json::MakeArray();
    for (const Json& item : object.items()) list.Append(WithoutSecrets(item));
    return list;
  }
  if (!object.is_object()) return object;
  Json reduced = Json::MakeObject();
  const bool is_secret_variable = SuggestsSecret(object.StringAt("name").value_or(""));
  for (const auto& [key, value] : object.members()) {
    if (key == "managedFields" || key == "kubectl.kubernetes.io/last-applied-configuration") {
      continue;
    }
    const bool is_secret =
        (key == "value" && is_secret_variable) || (value.is_string() && SuggestsSecret(key));
    if (is_secret) {
      reduced.Set(key, Json::String(kOmitted));
    } else if ((key == "args" || key == "command") && value.is_array()) {
      reduced.Set(key, ReducedArguments(value));
    } else {
      reduced.Set(key, WithoutSecrets(value));
    }
  }
  return reduced;
}

std::string WithoutTokens(std::string_view log) {
  static const std::regex kTokens(
      "[Bb]earer [A-Za-z0-9._~+/=-]+|eyJ[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+");
  std::string clean;
  bool in_key = false;
  for (const std::string_view line : Split(log, '\n')) {
    if (line.find("-----BEGIN") != std::string_view::npos &&
        line.find("PRIVATE KEY") != std::string_view::npos) {
      in_key = true;
    }
    const bool ends = line.find("-----END") != std::string_view::npos;
    if (in_key) {
      if (ends) clean += std::string(kOmitted) + "\n";
      in_key = in_key && !ends;
      continue;
    }
    // std::regex recurses once for each character, so long lines are truncated.
    clean +=
        std::regex_replace(TruncateUtf8(std::string(line), 4000), kTokens, std::string(kOmitted));
    clean += '\n';
  }
  // The loop adds a line end after the last line, which the log does not have.
  if (!clean.empty()) clean.pop_back();
  return clean;
}

}  // namespace tessera::cli
