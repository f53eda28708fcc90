// SPDX-License-Identifier: Apache-2.0
// Counts the instructions and system calls of a program by stepping through it, so that other work
// on the machine does not change the figures. Takes some microseconds for each instruction.
// Threads: one.
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

// Counts from the start of `argv[0]`, a path, until it executes another program or ends. Nullopt if
// the machine is not an x86-64, or the program cannot be traced.
std::optional<StepCount> CountSteps(const std::vector<std::string>& argv);

}  // namespace tessera
