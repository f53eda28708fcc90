// SPDX-License-Identifier: Apache-2.0
// The control tool of simulated nodes: creates, shows and removes them, and injects failures.
#pragma once

namespace tessera::sim {

// Runs `simgpu` with these arguments and returns its exit code. Prints to stdout and stderr.
int RunSimgpu(int argc, char** argv);

}  // namespace tessera::sim
