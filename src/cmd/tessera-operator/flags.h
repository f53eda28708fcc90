// SPDX-License-Identifier: Apache-2.0
// The command line of tessera-operator. A flag overrides its variable.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "src/cmd/election_flags.h"
#include "src/operator/operator.h"

namespace tessera {

struct OperatorFlags {
  operators::OperatorOptions options;
  std::string log_format = "text";
  ElectionFlags election;
  double resync_s = 0;
};

// Sets the defaults of `flags`, which must outlive `app`.
void AddOperatorFlags(CLI::App* app, OperatorFlags* flags);

operators::OperatorOptions ToOptions(const OperatorFlags& flags);

}  // namespace tessera
