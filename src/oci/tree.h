// SPDX-License-Identifier: Apache-2.0
// What stands at /dev/tessera in a container: the driver's files, links to them, and places on
// which further files are mounted. A list only; where it is made on the host, and how it gets into
// the container, is for Stage and ShareTree. Threads: one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::oci {

// Where the tree stands in a container whose /dev is not its own; else names::kContainerDriverDir.
inline constexpr std::string_view kOtherDriverDir = "/run/tessera";

struct TreeEntry {
  enum class Kind { kDriverFile, kPlace, kFolder, kLink };
  Kind kind;
  std::string name;    // relative: lib/libcuda.so.550.54.15
  std::string target;  // of a driver file its host path; of a link what it says; else empty
  mode_t mode = 0755;  // of a folder
};

class Tree {
 public:
  // The first of two of the same name wins.
  void AddDriverFile(std::string name, std::string host_path);
  void AddPlace(std::string name);  // an empty file
  // Some low-level runtimes (runc 1.1) give what is mounted on a folder the folder's mode.
  void AddFolder(std::string name, mode_t mode = 0755);
  void AddLink(std::string name, std::string target);

  const std::vector<TreeEntry>& entries() const { return entries_; }

  // Makes folders, links, and empty files in place of driver files, below `dir`, which is there and
  // holds none of them. Mounts nothing. The caller's umask applies.
  Status MakeIn(const std::string& dir) const;

 private:
  void Add(TreeEntry entry);
  std::vector<TreeEntry> entries_;
};

}  // namespace tessera::oci
