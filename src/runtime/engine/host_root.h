// SPDX-License-Identifier: Apache-2.0
// Access to a host's files, from the host itself or from a container that mounts its root, or parts
// of it, below a directory. Paths are host paths; symbolic links resolve as on the host and never
// lead out of the root. Threads: one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/subprocess.h"

namespace tessera::engine {

// A configuration file with the attributes to preserve when it is replaced.
struct FileState {
  std::string text;
  mode_t mode = 0644;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string selinux;  // the label; empty without SELinux

  bool operator==(const FileState&) const = default;
};

class HostRoot {
 public:
  // "" and "/" mean the root of this process.
  explicit HostRoot(std::string_view root);

  const std::string& root() const { return root_; }
  // Whether this process sees host paths unchanged.
  bool IsOwnRoot() const { return root_.empty(); }

  // The path under which this process sees the host path `path`; does not follow links.
  std::string Map(std::string_view path) const { return root_ + std::string(path); }
  // Like Map, but follows links. A missing file resolves to the path where it would be created.
  // FAILED_PRECONDITION: a dangling link.
  Result<std::string> Resolve(const std::string& path) const;

  bool Exists(const std::string& path) const;
  // nullopt if the file does not exist. FAILED_PRECONDITION: not a regular file;
  // RESOURCE_EXHAUSTED: larger than 4 MiB.
  Result<std::optional<FileState>> Read(const std::string& path) const;
  // Replaces the file atomically: readers, also after a crash, see either the old or the new file.
  // If `path` is a link, its target is replaced. The directory must exist.
  Status Write(const std::string& path, const FileState& state) const;
  Status Remove(const std::string& path) const;
  // Creates the directories above `path`. Returns the directories that were missing, outermost
  // first.
  Result<std::vector<std::string>> MakeParents(const std::string& path) const;
  // Host paths that match an absolute glob pattern, sorted. Includes dangling links.
  std::vector<std::string> Glob(const std::string& pattern) const;

 private:
  std::string root_;
};

// The host path of a program from the usual directories, or empty.
std::string FindHostProgram(const HostRoot& host, std::string_view name);

// Like RunProgram. PERMISSION_DENIED: the process lacks the right to chroot.
Result<SubprocessResult> RunOnHost(const HostRoot& host, const std::vector<std::string>& argv,
                                   Duration deadline);

}  // namespace tessera::engine
