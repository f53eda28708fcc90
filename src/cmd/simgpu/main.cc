// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/cli.h"

int main(int argc, char** argv) { return tessera::sim::RunSimgpu(argc, argv); }
