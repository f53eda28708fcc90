// SPDX-License-Identifier: Apache-2.0
// `tessera-runtime configure`: makes a container engine use the runtime, and undoes that. See
// README.md of this directory. Threads: the program must have only one.
#pragma once

namespace tessera::engine {

// argv[0] is "configure" or the program's name. Returns the exit code: 0 also if there is nothing
// to change; otherwise by src/base/status.h, with the reason on standard error.
int ConfigureMain(int argc, char** argv);

}  // namespace tessera::engine
