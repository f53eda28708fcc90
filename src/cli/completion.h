// SPDX-License-Identifier: Apache-2.0
// Completion of the command line in bash, zsh and fish, and in `kubectl tessera`. The shells'
// scripts ask the program itself, so they know new verbs and the names in the cluster. Included
// only in src/cli.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// Candidates for the last word of `words`, the command line after the program's name. A candidate
// ends with "=" if a value must follow directly, such as "jsonpath=". Names of objects are left out
// if the API server does not answer within seconds.
std::vector<std::string> Complete(const std::vector<std::string>& words);

// `tessera __complete WORD...`: prints one candidate per line.
int RunComplete(int argc, const char* const* argv);
// The main function of kubectl_complete-tessera, which kubectl runs to complete `kubectl tessera`.
int RunKubectlComplete(int argc, const char* const* argv);

}  // namespace tessera::cli
