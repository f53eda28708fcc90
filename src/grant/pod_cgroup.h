// SPDX-License-Identifier: Apache-2.0
// Parses the pod and the container from a cgroup path of the kubelet. Agent and runtime share this
// parser, because both must find the same pod. Supports both cgroup drivers, both cgroup versions,
// and the paths of containerd, CRI-O and Docker. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/base/uid.h"

namespace tessera::grant {

struct PodCgroup {
  Uid pod_uid;               // "fd3b355a-665c-4c95-8e7f-61fd2111689f"; 32 digits for a static pod
  std::string container_id;  // "" if the path names no container
  bool operator==(const PodCgroup&) const = default;
};

// `path` is relative to a cgroup hierarchy's root, or `linux.cgroupsPath` of an OCI bundle. nullopt
// if it belongs to no pod.
std::optional<PodCgroup> ParsePodCgroup(std::string_view path);

}  // namespace tessera::grant
