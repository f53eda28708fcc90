// SPDX-License-Identifier: Apache-2.0
// Reads a page that a pod serves over HTTP, through the API server (pods/proxy). So no port of a
// pod need be open to people; RBAC decides who may read it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/client.h"

namespace tessera::kube {

// Calls `on_done` once on the client's runner, unless the operation is destroyed before. The pod
// has `patience` to answer. Not retried: a pod that is down answers 503 through the API server.
Operation ReadPodPage(Client& client, const ObjectRef& pod, std::string_view port,
                      std::string_view path, Duration patience,
                      std::function<void(Result<std::string>)> on_done);

// More than 1,000 containers on 16 GPUs each.
inline constexpr size_t kMaxPodPage = 16 << 20;
// Path of such a page in the API server. `port` is a number: a proxy knows no names of ports.
std::string PodPagePath(const ObjectRef& pod, std::string_view port, std::string_view path);

// Reads any path of the API server as text, as ReadPodPage does; drops what exceeds `max_bytes`.
Operation ReadText(Client& client, const std::string& target, size_t max_bytes, Duration patience,
                   std::function<void(Result<std::string>)> on_done);

}  // namespace tessera::kube
