// SPDX-License-Identifier: Apache-2.0
// Finds the program of a name, and never this one. Uses the kernel alone, nothing of the C library,
// for early_start.h needs it before that is set up. Any thread.
#pragma once

#include <linux/limits.h>

#include <string_view>

namespace tessera::runtime {

// Low-level runtimes that are looked for where the configuration names none.
inline constexpr std::string_view kDefaultRuntimes[] = {"runc", "crun"};
// Where they are looked for after PATH. CRI-O's packages bring theirs in the last folder.
inline constexpr std::string_view kUsualFolders =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/tessera/bin:/usr/libexec/"
    "crio";

// An absolute path, ending with a zero.
using ProgramPath = char[PATH_MAX];

// The first of `folders` (as PATH has them; relative ones are passed over) with a program of that
// name.
bool FindProgram(std::string_view folders, std::string_view name, ProgramPath& path);

// Is it a regular file that we may execute, and not the program that runs here?
bool IsOtherProgram(const char* path);

}  // namespace tessera::runtime
