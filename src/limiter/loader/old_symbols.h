// SPDX-License-Identifier: Apache-2.0
// The C library of an image may be older than that of the build machine, in which some functions
// have a newer symbol version. These lines select the old version, which newer C libraries also
// have.
#pragma once

#if defined(__x86_64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.17");
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
#endif
