// SPDX-License-Identifier: Apache-2.0
#include "src/grant/pod_cgroup.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/strings.h"

namespace tessera::grant {
namespace {

constexpr size_t kUidDigits = 32;
constexpr size_t kUidLength = 36;  // with four dashes; the UID of a static pod has none

std::string_view WithoutSuffix(std::string_view text, std::string_view suffix) {
  return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

bool IsHex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "podfd3b355a-665c-…", or "kubepods-besteffort-podfd3b355a_665c_….slice": '-' separates levels
// of systemd slices, so the kubelet writes '_'.
Uid PodUidOf(std::string_view segment) {
  segment = WithoutSuffix(segment, ".slice");
  const size_t at = segment.rfind("pod");
  if (at == std::string_view::npos || (at > 0 && segment[at - 1] != '-')) return Uid();
  std::string uid(segment.substr(at + 3));
  std::ranges::replace(uid, '_', '-');
  std::string digits = uid;
  std::erase(digits, '-');
  const bool is_uid = uid.size() == kUidLength || uid.size() == kUidDigits;
  return is_uid && digits.size() == kUidDigits && IsHex(digits) ? Uid(std::move(uid)) : Uid();
}

// "<id>", "cri-containerd-<id>.scope", "crio-<id>.scope", "docker-<id>.scope".
std::string ContainerIdOf(std::string_view segment) {
  segment = WithoutSuffix(segment, ".scope");
  segment.remove_prefix(std::min(segment.size(), segment.rfind('-') + 1));
  return IsHex(segment) ? std::string(segment) : "";
}

}  // namespace

std::optional<PodCgroup> ParsePodCgroup(std::string_view path) {
  // The systemd driver's cgroupsPath is "<slice>:<prefix>:<name>".
  const size_t colon = path.find(".slice:");
  if (colon != std::string_view::npos) path = path.substr(0, colon + 6);
  const std::vector<std::string_view> segments = Split(path, '/');
  for (size_t i = 0; i < segments.size(); ++i) {
    Uid uid = PodUidOf(segments[i]);
    if (uid.empty()) continue;
    return PodCgroup{std::move(uid), i + 1 < segments.size() ? ContainerIdOf(segments[i + 1]) : ""};
  }
  return std::nullopt;
}

}  // namespace tessera::grant
