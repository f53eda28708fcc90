// SPDX-License-Identifier: Apache-2.0
// An OCI runtime that adds GPUs and leaves everything else to runc or crun: `create` and `run` edit
// the bundle first; every verb then executes the low-level runtime with the same arguments and
// environment. Keeps no state. Threads: one.
#pragma once

namespace tessera::runtime {

// Returns only with the exit code of an error or of our own verbs (explain, configure).
int RuntimeMain(int argc, char** argv);

}  // namespace tessera::runtime
