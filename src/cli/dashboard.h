// SPDX-License-Identifier: Apache-2.0
// `tessera dashboard`: the web console on this machine, with the user's kubeconfig. The console is
// another program, tessera-console, in the directory of this program or in $PATH.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/kube/config.h"

namespace tessera::cli {

struct DashboardOptions {
  int port = 0;  // 0: any
  std::string kubeconfig, context;
};

// The arguments for tessera-console, after its name.
std::vector<std::string> DashboardArguments(const DashboardOptions& options,
                                            const kube::GetEnv& getenv);

// The path of tessera-console: in `own_directory`, else in the directories of `search_path`
// ($PATH). NOT_FOUND with the remedy.
Result<std::string> FindConsole(const std::string& own_directory, const std::string& search_path);

}  // namespace tessera::cli
