// SPDX-License-Identifier: Apache-2.0
// Notices an API server that hangs. A watch on such a server looks like a watch without changes;
// only minutes of silence show the difference. So the probe requests the server's version, which
// every live server answers from memory, to every authenticated user.
//
// Threads: the client's runner, which also runs the callbacks. Ownership: the client outlives the
// probe.
#pragma once

#include <functional>

#include "src/base/weak_ptr.h"
#include "src/kube/client.h"

namespace tessera::ledger {

class ServerProbe {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(15);
  // What the probe requests; also its name in Outages.
  static constexpr const char* kPath = "/version";

  struct Handlers {
    // After each answer that is not a server error (5xx).
    std::function<void()> on_answer;
    // After each request that was not answered in time; `since` is when it was sent. Not called for
    // other errors, because they end the watches, too.
    std::function<void(const Status& status, WallTime since)> on_silence;
  };

  ServerProbe(kube::Client& client, Duration interval, Handlers handlers);

 private:
  void ProbeLater();
  void Probe();

  kube::Client& client_;
  const Duration interval_;
  const Handlers handlers_;
  kube::Operation request_;
  WeakPtrFactory<ServerProbe> weak_{this};
};

}  // namespace tessera::ledger
