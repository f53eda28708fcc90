// SPDX-License-Identifier: Apache-2.0
// Installs Tessera through its operator: the operator, the definition of its resource, and the
// resource, from which the operator makes all other objects. `kubectl edit tessera tessera` changes
// settings afterwards; `tessera uninstall` removes it.
//
// Threads: one; blocks. A run that fails or is killed is repeated. Errors: with the remedy;
// FAILED_PRECONDITION or ALREADY_EXISTS if Tessera is installed.
#pragma once

#include <cstdio>
#include <optional>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/formats/json.h"

namespace tessera::cli {

// In the order in which they are applied; the resource comes last.
Result<std::vector<Json>> OperatorObjects(const Json& spec);

class OperatorInstaller {
 public:
  // `patience`: of waiting until the resource is ready; nullopt: does not wait.
  OperatorInstaller(ClusterClient& api, std::FILE* out, std::optional<Duration> patience)
      : api_(api), out_(out), patience_(patience) {}

  // `force`: also over an operator that is there, whose settings are replaced.
  Status Install(const Json& spec, bool force);

 private:
  Status ReplaceSpec(const Json& spec);
  Status ApplyResource(const Json& resource);
  Status WaitUntilReady();

  ClusterClient& api_;
  std::FILE* const out_;
  const std::optional<Duration> patience_;
};

}  // namespace tessera::cli
