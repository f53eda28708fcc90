// SPDX-License-Identifier: Apache-2.0
// Binds a pod to a node through the pod's binding subresource, as schedulers do. A binding is
// final. Threads: the client's runner, which also runs the callback.
#pragma once

#include <string>

#include "src/base/uid.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"

namespace tessera::kube {

struct PodBinding {
  std::string ns;
  std::string pod;
  Uid uid;  // of the pod that was scheduled; another pod of the same name is rejected
  std::string node;
  // Written to the pod atomically with its node.
  StringMap annotations;
};

// ABORTED: the pod is already bound, is being deleted, or has another UID. NOT_FOUND: it was
// deleted. After UNAVAILABLE or DEADLINE_EXCEEDED the pod may be bound; the next watch event shows
// its state.
Operation BindPod(Client& client, const PodBinding& binding,
                  std::function<void(const Status&)> on_done, BeforeSend before_send = nullptr);

}  // namespace tessera::kube
