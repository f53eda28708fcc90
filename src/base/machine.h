// SPDX-License-Identifier: Apache-2.0
// Names of the architecture that the program is built for, as they occur in file names. They are
// macros, so that string literals can be concatenated with them.
#pragma once

// The name that uname prints and that NVIDIA uses in its file names.
#if defined(__x86_64__)
#define TESSERA_MACHINE "x86_64"
#elif defined(__aarch64__)
#define TESSERA_MACHINE "aarch64"
#else
#error "Tessera runs on x86_64 and aarch64"
#endif

// The name of Debian's library folder below /usr/lib.
#define TESSERA_MULTIARCH TESSERA_MACHINE "-linux-gnu"
