// SPDX-License-Identifier: Apache-2.0
// Runs another program to its end, with a timeout. Blocks, so call it on a Worker. Never uses a
// shell. Uses posix_spawn, which is safe in programs with threads.
#pragma once

#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"

namespace tessera {

struct SubprocessResult {
  int exit_code = -1;  // 128 + signal if a signal ended the program
  std::string out;     // standard output, at most 1 MiB; the rest is dropped
  std::string err;     // standard error, at most 1 MiB; the rest is dropped
};

// Finds `argv[0]` in PATH. A nonzero exit code is a result, not an error. Entries of `extra_env`,
// "NAME=value", override the environment of this program. DEADLINE_EXCEEDED: the program was
// killed after `timeout`; the message contains its output. NOT_FOUND: no such program.
Result<SubprocessResult> RunProgram(const std::vector<std::string>& argv, Duration timeout,
                                    const std::vector<std::string>& extra_env = {});

}  // namespace tessera
