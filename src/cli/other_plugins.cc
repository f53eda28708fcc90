// SPDX-License-Identifier: Apache-2.0
#include "src/cli/other_plugins.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::cli {
namespace {

// A part of an image's name, and the system to which such images belong. The first match counts.
constexpr std::pair<std::string_view, std::string_view> kImages[] = {
    {"volcano-vgpu-device-plugin", "Volcano vGPU"},
    {"gpushare-device-plugin", "gpushare"},
    {"k8s-gpushare-plugin", "gpushare"},
    {"k8s-device-plugin", "NVIDIA's device plugin"},
    {"gpu-manager", "gpu-manager"},
    {"projecthami/hami", "HAMi"},
    {"vgpu-manager", "NVIDIA's vGPU manager"}};

constexpr std::array<std::string_view, 5> kForeignResources = {
    "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores",
    "nvidia.com/priority", "nvidia.com/gpu.shared"};

}  // namespace

std::string_view OtherPluginOf(const Json& daemon_set) {
  for (const Json& container : ItemsAt(daemon_set, {"spec", "template", "spec", "containers"})) {
    const std::string image = TextAt(container, {"image"});
    for (const auto& [part, system] : kImages) {
      if (image.find(part) != std::string::npos) return system;
    }
  }
  return "";
}

bool IsRunByNvidiaOperator(const Json& daemon_set) {
  return std::ranges::any_of(
      ItemsAt(daemon_set, {"metadata", "ownerReferences"}),
      [](const Json& owner) { return TextAt(owner, {"kind"}) == "ClusterPolicy"; });
}

bool IsForeignGpuResource(std::string_view resource) {
  return std::ranges::find(kForeignResources, resource) != kForeignResources.end() ||
         resource.starts_with("volcano.sh/vgpu-");
}

std::string FlagOf(const Json& daemon_set, std::string_view flag) {
  std::vector<std::string> words;
  for (const Json& container : ItemsAt(daemon_set, {"spec", "template", "spec", "containers"})) {
    for (const char* list : {"command", "args"}) {
      for (const Json& word : ItemsAt(container, {list})) {
        if (word.is_string()) words.push_back(word.string_value());
      }
    }
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(std::string(flag) + "=")) return words[i].substr(flag.size() + 1);
  }
  return "";
}

}  // namespace tessera::cli
