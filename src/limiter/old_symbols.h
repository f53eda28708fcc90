// SPDX-License-Identifier: Apache-2.0
// The C library of an image may be older than the one that the limiter is built with. Where newer
// versions have a new symbol for an old function, the old one is asked for; glibc keeps both.
#pragma once

#if defined(__x86_64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen,dlopen@GLIBC_2.17");
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
#endif
