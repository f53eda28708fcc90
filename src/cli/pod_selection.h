// SPDX-License-Identifier: Apache-2.0
// The pods that a label selector selects, by the API server. Threads, callbacks: the client's
// runner. Ownership: the client outlives it. Included only in src/cli.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "src/base/status.h"
#include "src/kube/client.h"

namespace tessera::cli {

class PodSelection {
 public:
  using Done = std::function<void(Result<std::set<std::string>>)>;  // "namespace/name"

  explicit PodSelection(kube::Client& client) : client_(client) {}

  // Calls `done` once, and not after this is destroyed. `ns`: "" for all namespaces.
  void Read(const std::string& ns, const std::string& selector, Done done);

 private:
  void ReadPage(const kube::ListQuery& query);

  kube::Client& client_;
  std::set<std::string> pods_;
  Done done_;
  kube::Operation listing_;
};

}  // namespace tessera::cli
