// SPDX-License-Identifier: Apache-2.0
// An OCI runtime that adds GPUs and leaves everything else to runc or crun: `create` and `run` edit
// the bundle first, and every verb becomes the low-level runtime, by exec, with the same arguments
// and environment. Keeps no state. Threads: one.
#pragma once

namespace tessera::runtime {

// Returns only with an error's exit code, or that of a verb of our own (explain, configure).
int RuntimeMain(int argc, char** argv);

}  // namespace tessera::runtime
