// SPDX-License-Identifier: Apache-2.0
// The pod and the container that a cgroup of the kubelet belongs to. Agent and runtime read both
// from paths, and must agree. Knows the paths of both cgroup drivers and both cgroup versions, and
// of containerd, CRI-O and Docker. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::grant {

struct PodCgroup {
  std::string pod_uid;       // "fd3b355a-665c-4c95-8e7f-61fd2111689f"; 32 digits for a static pod
  std::string container_id;  // "" for the pod itself, and where the path names no container
  bool operator==(const PodCgroup&) const = default;
};

// `path`: below the root of a cgroup hierarchy, or as `linux.cgroupsPath` of an OCI bundle has it.
// Nothing where it belongs to no pod.
std::optional<PodCgroup> ParsePodCgroup(std::string_view path);

}  // namespace tessera::grant
