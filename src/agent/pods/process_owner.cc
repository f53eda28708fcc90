// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/process_owner.h"

#include <algorithm>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

constexpr size_t kUuidLength = 36;
constexpr size_t kStaticPodLength = 32;  // of a static pod: a hash

std::string_view WithoutSuffix(std::string_view text, std::string_view suffix) {
  return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

bool IsHex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "podfd3b355a-665c-…", or "kubepods-besteffort-podfd3b355a_665c_….slice": systemd takes '-' for a
// level of its own, so the kubelet writes '_'.
std::string PodUidOf(std::string_view segment) {
  segment = WithoutSuffix(segment, ".slice");
  const size_t at = segment.rfind("pod");
  if (at == std::string_view::npos || (at > 0 && segment[at - 1] != '-')) return "";
  std::string uid(segment.substr(at + 3));
  std::ranges::replace(uid, '_', '-');
  std::string digits = uid;
  std::erase(digits, '-');
  const bool is_uid = uid.size() == kUuidLength || uid.size() == kStaticPodLength;
  return is_uid && digits.size() == kStaticPodLength && IsHex(digits) ? uid : "";
}

// "<id>", "cri-containerd-<id>.scope", "crio-<id>.scope", "docker-<id>.scope".
std::string ContainerIdOf(std::string_view segment) {
  segment = WithoutSuffix(segment, ".scope");
  segment.remove_prefix(std::min(segment.size(), segment.rfind('-') + 1));
  return IsHex(segment) ? std::string(segment) : "";
}

}  // namespace

std::optional<ProcessOwner> ParseProcessOwner(std::string_view cgroup) {
  for (const std::string_view line : Split(cgroup, '\n')) {
    // "4:memory:/kubepods/…": the path is what follows the second colon, and may have colons.
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::vector<std::string_view> segments = Split(line.substr(second + 1), '/');
    for (size_t i = 0; i < segments.size(); ++i) {
      std::string uid = PodUidOf(segments[i]);
      if (uid.empty()) continue;
      return ProcessOwner{std::move(uid),
                          i + 1 < segments.size() ? ContainerIdOf(segments[i + 1]) : ""};
    }
  }
  return std::nullopt;
}

std::optional<ProcessOwner> OwnerOf(const std::string& proc_root, int pid) {
  const Result<std::string> cgroup = ReadFile(fmt::format("{}/{}/cgroup", proc_root, pid));
  return cgroup.ok() ? ParseProcessOwner(*cgroup) : std::nullopt;
}

std::optional<int> OwnPidOf(const std::string& proc_root, int pid) {
  const Result<std::string> status = ReadFile(fmt::format("{}/{}/status", proc_root, pid));
  if (!status.ok()) return std::nullopt;
  for (const std::string_view line : Split(*status, '\n')) {
    // "NSpid:\t4711\t12": in each PID namespace from ours down to its own.
    if (!line.starts_with("NSpid:")) continue;
    const Result<int64_t> own = ParseInt(line.substr(line.rfind('\t') + 1));
    return own.ok() ? std::optional(static_cast<int>(*own)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tessera::agent
