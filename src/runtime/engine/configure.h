// SPDX-License-Identifier: Apache-2.0
// `tessera-runtime configure`: makes a container engine use the runtime, and takes it back.
// README.md of this folder shows how. Threads: call it from a program that has only one.
#pragma once

namespace tessera::engine {

// argv[0] is the word "configure" or the program's name. Gives the exit code: 0 also where there
// was nothing to do; else by src/base/status.h, and the reason is on standard error.
int ConfigureMain(int argc, char** argv);

}  // namespace tessera::engine
