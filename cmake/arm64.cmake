# SPDX-License-Identifier: Apache-2.0
# Builds for arm64 with Debian's cross-compiler (package g++-aarch64-linux-gnu) and the libraries that
# scripts/sysroot unpacks. Tests run under qemu-user where qemu-user-static is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(cache $ENV{TESSERA_CACHE})
if(NOT cache)
  set(cache $ENV{HOME}/.cache/tessera)
endif()
set(CMAKE_SYSROOT ${cache}/sysroot-arm64)
if(NOT EXISTS ${CMAKE_SYSROOT}/etc/packages)
  message(FATAL_ERROR "cannot build for arm64: ${CMAKE_SYSROOT} has no libraries: run scripts/sysroot arm64")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

# The cross-compiler has libraries of its own, which get no security updates. -B prefers those of the sysroot.
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-B${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/ -B${CMAKE_SYSROOT}/usr/lib/gcc/aarch64-linux-gnu/12/")
set(CMAKE_SHARED_LINKER_FLAGS_INIT ${CMAKE_EXE_LINKER_FLAGS_INIT})
# char is signed, as on amd64, where all tests run. No notes on the ABI before GCC 10.
set(CMAKE_C_FLAGS_INIT -fsigned-char)
set(CMAKE_CXX_FLAGS_INIT "-fsigned-char -Wno-psabi")

find_program(TESSERA_QEMU qemu-aarch64-static)
if(TESSERA_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TESSERA_QEMU} -L ${CMAKE_SYSROOT})
endif()
