// SPDX-License-Identifier: Apache-2.0
// The control tool of simulated nodes: makes, shows, breaks and removes them.
#pragma once

namespace tessera::sim {

// Runs `simgpu` with these arguments; gives its exit code. Prints to standard output and error.
int RunSimgpu(int argc, char** argv);

}  // namespace tessera::sim
