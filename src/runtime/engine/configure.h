// SPDX-License-Identifier: Apache-2.0
// `tessera-runtime configure`: makes a container engine use the runtime, and undoes that. See
// README.md of this directory. Threads: the program must have only one.
#pragma once

namespace tessera::engine {

// argv[0] is "configure" or the program's name. Returns the exit code: 0 for success, also if there
// is nothing to change. After an error, prints the reason to standard error and returns the error's
// exit code (src/base/status.h).
int ConfigureMain(int argc, char** argv);

}  // namespace tessera::engine
