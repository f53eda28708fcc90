// SPDX-License-Identifier: Apache-2.0
// Reads a page that a pod of tessera-system serves over HTTP, through the API server (pods/proxy).
// So no port of a pod need be open to people; RBAC decides who may read it. Included only in
// src/cli.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/client.h"

namespace tessera::cli {

// Calls `on_done` once on the client's runner, unless the operation is destroyed before. The pod
// has `patience` to answer. Not retried: a pod that is down answers 503 through the API server.
kube::Operation ReadPodPage(kube::Client& client, const std::string& pod, std::string_view port,
                            std::string_view path, Duration patience,
                            std::function<void(Result<std::string>)> on_done);

// More than 1,000 containers on 16 GPUs each.
inline constexpr size_t kMaxPodPage = 16 << 20;
// Path of such a page in the API server.
std::string PodPagePath(const std::string& pod, std::string_view port, std::string_view path);

// Reads any path of the API server as text, as ReadPodPage does; drops what exceeds `max_bytes`.
kube::Operation ReadText(kube::Client& client, const std::string& target, size_t max_bytes,
                         Duration patience, std::function<void(Result<std::string>)> on_done);

}  // namespace tessera::cli
