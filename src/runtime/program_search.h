// SPDX-License-Identifier: Apache-2.0
// Finds a program by name, but never the running program. Uses only system calls, because
// early_start.h calls it before the C library is set up. Any thread.
#pragma once

#include <linux/limits.h>

#include <string_view>

namespace tessera::runtime {

// Low-level runtimes to search for if the configuration names none.
inline constexpr std::string_view kDefaultRuntimes[] = {"runc", "crun"};
// Directories to search after PATH. CRI-O's packages install their runtime in the last directory.
inline constexpr std::string_view kUsualDirs =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/tessera/bin:/usr/libexec/"
    "crio";

// An absolute path, ending with a zero.
using ProgramPath = char[PATH_MAX];

// Finds `name` in the first of `dirs` that has it. `dirs` has PATH's format; relative directories
// are skipped.
bool FindProgram(std::string_view dirs, std::string_view name, ProgramPath& path);

// Whether `path` is a regular file that this process may execute, and not this program.
bool IsOtherProgram(const char* path);

}  // namespace tessera::runtime
