// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/env_protocol.h"

#include <algorithm>

#include "api/names.h"
#include "src/base/strings.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kCudaVersion = "CUDA_VERSION";
constexpr std::string_view kRequireCuda = "NVIDIA_REQUIRE_CUDA";
constexpr std::string_view kRequireJetpack = "NVIDIA_REQUIRE_JETPACK";

// The values that Go's strconv.ParseBool accepts as true.
bool IsTrue(std::string_view text) {
  return text == "1" || text == "t" || text == "T" || text == "true" || text == "TRUE" ||
         text == "True";
}

// "12.4.1" -> "12.4".
std::string MajorMinor(std::string_view version) {
  const size_t first = version.find('.');
  if (first == std::string_view::npos) return std::string(version);
  return std::string(version.substr(0, version.find('.', first + 1)));
}

std::string ListOf(const std::vector<oci::ProcGpu>& gpus) {
  std::string list;
  for (size_t i = 0; i < gpus.size(); ++i) {
    list += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, gpus[i].uuid);
  }
  return list.empty() ? "none" : list;
}

Result<size_t> IndexOf(const std::string& item, const std::vector<oci::ProcGpu>& gpus) {
  if (item.find('=') != std::string::npos) {
    return Error(Code::kUnimplemented,
                 "\"{}\": names of the Container Device Interface are resolved by the engine, not "
                 "here: use --device",
                 item);
  }
  if (item.starts_with("MIG-") || item.find(':') != std::string::npos) {
    return Error(Code::kUnimplemented,
                 "\"{}\": MIG devices are not supported outside Kubernetes: name whole GPUs", item);
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid == item || std::to_string(i) == item) return i;
  }
  return Error(Code::kNotFound, "\"{}\": no such GPU on this node, which has: {}", item,
               ListOf(gpus));
}

}  // namespace

// The rule of NVIDIA's toolkit (IsLegacy in internal/config/image/cuda_image.go).
bool IsLegacyCudaImage(const oci::ConfigDocument& document) {
  return !document.env().Get(kCudaVersion).value_or("").empty() &&
         !document.env().Get(kRequireCuda);
}

VisibleDevices ReadVisibleDevices(const oci::ConfigDocument& document) {
  using Kind = VisibleDevices::Kind;
  const auto value = document.env().Get(names::kEnvVisibleDevices);
  if (!value) return {IsLegacyCudaImage(document) ? Kind::kAll : Kind::kNothing, {}};
  VisibleDevices visible;
  for (const std::string_view item : SplitList(*value)) visible.items.emplace_back(item);
  if (visible.items.empty()) return {};
  const auto find = [&](std::string_view word) {
    return std::find(visible.items.begin(), visible.items.end(), word);
  };
  const auto end = visible.items.end();
  if (find("void") != end) return {};
  // In a list with both "all" and "none" the first word decides, as in NVIDIA's toolkit
  // (NewVisibleDevices in internal/config/image/devices.go).
  const auto all = find("all"), none = find("none");
  if (all != end || none != end) return {all < none ? Kind::kAll : Kind::kDriverOnly, {}};
  visible.kind = Kind::kListed;
  return visible;
}

Result<oci::Capabilities> ReadCapabilities(const oci::ConfigDocument& document) {
  const auto value = document.env().Get(names::kEnvDriverCapabilities);
  if (!value && IsLegacyCudaImage(document)) return oci::kAllCapabilities;
  return oci::ParseCapabilities(value.value_or("")).Annotate(names::kEnvDriverCapabilities);
}

std::vector<std::pair<std::string, std::string>> ReadRequirements(
    const oci::ConfigDocument& document) {
  std::vector<std::pair<std::string, std::string>> requirements;
  if (IsTrue(document.env().Get(names::kEnvDisableRequire).value_or(""))) return requirements;
  for (auto& [name, value] : document.env().FindByPrefix(names::kEnvRequirePrefix)) {
    if (!name.starts_with(kRequireJetpack)) requirements.emplace_back(name, value);
  }
  if (IsLegacyCudaImage(document)) {
    const std::string version = MajorMinor(document.env().Get(kCudaVersion).value_or(""));
    requirements.emplace_back(kCudaVersion, "cuda>=" + version);
  }
  return requirements;
}

Result<std::vector<oci::ProcGpu>> SelectGpus(const VisibleDevices& visible,
                                             const std::vector<oci::ProcGpu>& gpus) {
  if (visible.kind == VisibleDevices::Kind::kAll) return gpus;
  std::vector<bool> chosen(gpus.size());
  for (const std::string& item : visible.items) {
    Result<size_t> index = IndexOf(item, gpus);
    if (!index.ok()) return index.status().Annotate(names::kEnvVisibleDevices);
    chosen[*index] = true;
  }
  std::vector<oci::ProcGpu> selected;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (chosen[i]) selected.push_back(gpus[i]);
  }
  return selected;
}

}  // namespace tessera::runtime
