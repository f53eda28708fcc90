// SPDX-License-Identifier: Apache-2.0
#include "src/cli/pod_warnings.h"

#include <algorithm>

#include "api/names.h"

namespace tessera::cli {
namespace {

bool IsOfAgent(const Json& event) {
  const Json* source = event.Find("source");
  return source != nullptr && source->StringAt("component").value_or("") == names::kAgent;
}

}  // namespace

kube::ListQuery WarningsQuery(const std::string& ns, const Uid& uid) {
  return {.type = kube::kEvents,
          .ns = ns,
          .field_selector = "type=Warning,involvedObject.uid=" + uid.str()};
}

std::vector<PodWarning> WarningsIn(const std::vector<kube::RawObject>& events) {
  std::vector<PodWarning> warnings;
  for (const kube::RawObject& object : events) {
    if (object.json() == nullptr || !IsOfAgent(*object.json())) continue;
    const Json& event = *object.json();
    warnings.push_back({.at = event.StringAt("lastTimestamp").value_or(""),
                        .reason = event.StringAt("reason").value_or(""),
                        .message = event.StringAt("message").value_or(""),
                        .count = event.IntAt("count").value_or(1)});
  }
  std::ranges::stable_sort(warnings, {}, &PodWarning::at);
  return warnings;
}

Json JsonOf(const PodWarning& warning) {
  return Json::MakeObject({{"lastTimestamp", Json::String(warning.at)},
                           {"reason", Json::String(warning.reason)},
                           {"message", Json::String(warning.message)},
                           {"count", Json::Int(warning.count)}});
}

}  // namespace tessera::cli
