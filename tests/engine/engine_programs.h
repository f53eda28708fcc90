// SPDX-License-Identifier: Apache-2.0
// Container engines that tests run but do not install: the engines that the test cluster's build
// made, and Debian's packages, unpacked into $TESSERA_CACHE.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "src/base/file.h"
#include "src/base/subprocess.h"

namespace tessera {

inline std::string EngineCache() {
  const char* cache = ::getenv("TESSERA_CACHE");
  const char* home = ::getenv("HOME");
  return cache != nullptr ? cache : JoinPath(home != nullptr ? home : "/root", ".cache/tessera");
}

// Returns the folder of a part of the test cluster's build if it contains this program, else "".
inline std::string BuiltPart(const std::string& part, const std::string& program) {
  for (const std::string& name : ListDir(EngineCache()).value_or({})) {
    const std::string folder = JoinPath(EngineCache(), name);
    if (name.starts_with(part + "-") && PathExists(JoinPath(folder, program))) return folder;
  }
  return "";
}

// Returns the folder with the test cluster's containerd, ctr and shim, or else the host's folder
// with these programs, or "" if there is none.
inline std::string BuiltContainerd() {
  const std::string built = BuiltPart("containerd", "ctr");
  if (!built.empty()) return built;
  for (const char* folder : {"/usr/local/bin", "/usr/bin"}) {
    if (PathExists(JoinPath(folder, "containerd")) && PathExists(JoinPath(folder, "ctr"))) {
      return folder;
    }
  }
  return "";
}

// Returns the folder of Debian's package for `name`: "docker" (with the containerd that it starts)
// or "containerd-1.7". An error says why the package is not available.
inline Result<std::string> DebianEngine(const std::string& fetch_debs, const std::string& name) {
  const std::string dir = JoinPath(EngineCache(), "engine-packages");
  ASSIGN_OR_RETURN(const SubprocessResult fetched,
                   RunProgram({fetch_debs, dir, "main",
                               "docker=bookworm:docker.io,containerd,libdevmapper1.02.1",
                               "containerd-1.7=trixie:containerd"},
                              std::chrono::seconds(240)));
  if (fetched.exit_code == 0) return JoinPath(dir, name);
  return Error(Code::kUnavailable, "Debian's packages are not available: {}", fetched.err);
}

}  // namespace tessera
