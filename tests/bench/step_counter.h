// SPDX-License-Identifier: Apache-2.0
// Counts what a program does by stepping through it: figures that no other work on the machine
// changes. Slow, some microseconds for each instruction. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct StepCount {
  long instructions = 0;  // of the program; not the kernel's
  long system_calls = 0;
  long cpuids = 0;  // each leaves a virtual machine, which costs microseconds
};

// From the start of `argv[0]`, a path, until it becomes another program or ends. Nothing where the
// machine is no x86-64, or where it cannot be traced.
std::optional<StepCount> CountSteps(const std::vector<std::string>& argv);

}  // namespace tessera
