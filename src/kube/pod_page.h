// SPDX-License-Identifier: Apache-2.0
// Reads a page that a pod serves over HTTP, through the API server (pods/proxy). Users thus need no
// network access to the pod, and RBAC decides who may read the page. Threads: the client's runner.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/client.h"

namespace tessera::kube {

// Calls `on_done` once on the client's runner, unless the operation is destroyed first. The pod
// must answer within `timeout`. A 503 is not retried, because the API server also answers 503 for a
// pod that is down.
Operation ReadPodPage(Client& client, const ObjectRef& pod, std::string_view port,
                      std::string_view path, Duration timeout,
                      std::function<void(Result<std::string>)> on_done);

// The maximum size of a page: enough for more than 1,000 containers on 16 GPUs each.
inline constexpr size_t kMaxPodPage = 16 << 20;
// The path of a pod's page in the API server. `port` is a number, because pods/proxy does not know
// the names of ports.
std::string PodPagePath(const ObjectRef& pod, std::string_view port, std::string_view path);

// Reads any path of the API server as text, like ReadPodPage. Drops the text beyond `max_bytes`.
Operation ReadText(Client& client, const std::string& target, size_t max_bytes, Duration timeout,
                   std::function<void(Result<std::string>)> on_done);

}  // namespace tessera::kube
