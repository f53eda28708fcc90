// SPDX-License-Identifier: Apache-2.0
// Names of the architecture that the program is built for, as files and folders of nodes and
// containers carry them. They are macros, so that literals can be joined with them.
#pragma once

// As uname prints it, and as NVIDIA names its files.
#if defined(__x86_64__)
#define TESSERA_MACHINE "x86_64"
#elif defined(__aarch64__)
#define TESSERA_MACHINE "aarch64"
#else
#error "Tessera runs on x86_64 and aarch64"
#endif

// Debian's folder of libraries, below /usr/lib.
#define TESSERA_MULTIARCH TESSERA_MACHINE "-linux-gnu"
