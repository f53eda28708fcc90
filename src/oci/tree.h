// SPDX-License-Identifier: Apache-2.0
// The content of /dev/tessera in a container: the driver's files, links to them, and mount points
// for further files. A list only; Stage and ShareTree create it on the host. Threads: one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::oci {

// The location of the tree in a container whose /dev is not private; otherwise
// names::kContainerDriverDir.
inline constexpr std::string_view kRunDriverDir = "/run/tessera";

// True: the path is, or is in, one of these two directories.
bool IsInDriverDir(std::string_view path);

enum class TreeEntryKind { kDriverFile, kMountPoint, kDir, kLink };

struct TreeEntry {
  TreeEntryKind kind;
  std::string name;    // relative: lib/libcuda.so.550.54.15
  std::string target;  // driver file: its host path; link: its target; else empty
  mode_t mode = 0755;  // mode of a directory
};

class Tree {
 public:
  // If a name is added twice the first entry counts.
  void AddDriverFile(std::string name, std::string host_path);
  void AddMountPoint(std::string name);  // an empty file
  // A directory may need a mode, because some low-level runtimes (runc 1.1) give a mount on a
  // directory that directory's mode.
  void AddDir(std::string name, mode_t mode = 0755);
  void AddLink(std::string name, std::string target);

  const std::vector<TreeEntry>& entries() const { return entries_; }

  // Creates the directories, the links, and an empty file for each driver file in `dir`, which
  // exists and contains none of them. Mounts nothing. The caller's umask applies.
  Status MakeIn(const std::string& dir) const;

 private:
  void Add(TreeEntry entry);
  std::vector<TreeEntry> entries_;
};

}  // namespace tessera::oci
