// SPDX-License-Identifier: Apache-2.0
// System calls for code that runs before the C library is set up. They return the kernel's result:
// a negative number is an error.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

namespace tessera::runtime::raw {

inline long Call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result;
  // The instruction syscall overwrites rcx, so the kernel takes the fourth argument from r10.
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#else
#error "no system calls for this architecture"
#endif
}

inline long Address(const void* pointer) { return reinterpret_cast<long>(pointer); }

inline long Stat(const char* path, struct stat* info) {
  return Call(SYS_newfstatat, AT_FDCWD, Address(path), Address(info), 0);
}
inline long Access(const char* path, int mode) {
  return Call(SYS_faccessat, AT_FDCWD, Address(path), mode, 0);
}
inline long OpenToRead(const char* path) {
  return Call(SYS_openat, AT_FDCWD, Address(path), O_RDONLY | O_CLOEXEC, 0);
}
inline long Read(int fd, char* to, unsigned long size) {
  return Call(SYS_read, fd, Address(to), static_cast<long>(size), 0);
}
inline void Close(int fd) { Call(SYS_close, fd, 0, 0, 0); }
inline long Execute(const char* path, char** argv, char** env) {
  return Call(SYS_execve, Address(path), Address(argv), Address(env), 0);
}

}  // namespace tessera::runtime::raw
