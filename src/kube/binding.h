// SPDX-License-Identifier: Apache-2.0
// Binds a pod to a node, as schedulers do: once for all, by the pod's binding subresource.
#pragma once

#include <string>

#include "src/base/uid.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"

namespace tessera::kube {

struct PodBinding {
  std::string ns;
  std::string pod;
  Uid uid;  // of the pod that was decided about; another of its name is refused
  std::string node;
  // Written to the pod in the same step as its node: there is no moment with the one and not the
  // other.
  StringMap annotations;
};

// ABORTED: the pod is bound already, is being deleted, or is another one than `uid`. NOT_FOUND: it
// is gone. UNAVAILABLE or DEADLINE_EXCEEDED leave open whether it happened: what a watch says next
// does not.
Operation BindPod(Client& client, const PodBinding& binding,
                  std::function<void(const Status&)> on_done, BeforeSend before_send = nullptr);

}  // namespace tessera::kube
