// SPDX-License-Identifier: Apache-2.0
// The C library of an image may be older than the build machine's. Some functions have got a newer
// symbol version since. These lines select the old version, which glibc keeps.
#pragma once

#if defined(__x86_64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.17");
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
#endif
