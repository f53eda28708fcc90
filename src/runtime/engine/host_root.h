// SPDX-License-Identifier: Apache-2.0
// The files of a host, seen from the host itself or from a container that has (parts of) it mounted
// below a folder. Paths are the host's; symbolic links are followed as the host would follow them
// and never lead out of the root. Threads: one.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::engine {

// A configuration file with what else has to survive when it is replaced.
struct FileState {
  std::string text;
  mode_t mode = 0644;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string selinux;  // the label, empty where there is none

  bool operator==(const FileState&) const = default;
};

class HostRoot {
 public:
  // "" and "/" are the machine itself.
  explicit HostRoot(std::string_view root);

  const std::string& root() const { return root_; }
  bool IsMachine() const { return root_.empty(); }

  // Where `path` lies for this process, links not followed.
  std::string Map(std::string_view path) const { return root_ + std::string(path); }
  // The real file behind `path`, for this process. A file that is missing resolves to where it
  // would be made. FAILED_PRECONDITION: a link that leads nowhere.
  Result<std::string> Resolve(const std::string& path) const;

  bool Exists(const std::string& path) const;
  // Nothing for a file that does not exist. FAILED_PRECONDITION: no regular file;
  // RESOURCE_EXHAUSTED: longer than a configuration can be (4 MiB).
  Result<std::optional<FileState>> Read(const std::string& path) const;
  // Readers, and a crash, see the old or the new file and nothing else. A link stays a link: what
  // it leads to is replaced. Folders must exist.
  Status Write(const std::string& path, const FileState& state) const;
  Status Remove(const std::string& path) const;
  // Makes the folders above `path`, and gives those that were missing, outermost first.
  Result<std::vector<std::string>> MakeParents(const std::string& path) const;
  // Host paths that match a glob pattern, sorted.
  std::vector<std::string> Glob(const std::string& pattern) const;

 private:
  std::string root_;
};

}  // namespace tessera::engine
