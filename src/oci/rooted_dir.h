// SPDX-License-Identifier: Apache-2.0
// The root directory of a foreign file system: of a container or of the driver. Callers run as
// root, and the author of an image controls the container's file system. So the kernel resolves
// paths inside the root (openat2), and no symbolic link leads outside, even if it is replaced
// concurrently. Needs Linux 5.6; older kernels give UNIMPLEMENTED. Any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/file.h"
#include "src/base/status.h"

namespace tessera::oci {

enum class Links {
  kInRoot,  // followed as if the root directory were /
  kReject,  // any symbolic link in the path is an error
};

class RootedDir {
 public:
  static Result<RootedDir> Open(const std::string& path);

  const std::string& path() const { return dir_.path(); }

  // Opens for reading. NOT_FOUND; INVALID_ARGUMENT for a rejected link or a file that is not
  // regular, which is not opened, so that no FIFO blocks and no device is touched.
  Result<Fd> OpenFile(const std::string& path, Links links) const;
  // Like OpenFile in fewer steps, for directories of the host: opens and closes files that are not
  // regular.
  Result<Fd> OpenTrustedFile(const std::string& path) const;
  Result<std::string> Read(const std::string& path, Links links, size_t max_size) const;
  bool HasDir(const std::string& path, Links links) const;
  bool Exists(const std::string& path) const;
  // Whether nothing has this name, not even a dangling symbolic link.
  bool IsMissing(const std::string& path) const;
  // The target, unresolved, of the symbolic link `path`.
  Result<std::string> ReadLink(const std::string& path) const;
  // Replaces or creates the regular file `path` in an existing directory, without following
  // symbolic links. The file gets the owner of the old file, else of its directory, and mode 0644.
  // Readers see the old or the new content; nothing is flushed to disk. INVALID_ARGUMENT for a link
  // in the path, or if `path` is not a regular file; the kernel's error if the file system is not
  // writable.
  Status ReplaceFile(const std::string& path, std::string_view data) const;
  // Creates links with these names in the existing directory `dir`, to the same names in
  // `target_dir`. They get the owner of `dir`. A name that exists stays as it is, unless it is a
  // link whose target `may_replace` accepts. INVALID_ARGUMENT for a link in `dir`; the kernel's
  // error if the file system is not writable. After an error the first links may have been created.
  Status MakeLinks(const std::string& dir, std::string_view target_dir,
                   const std::vector<std::string>& names,
                   const std::function<bool(std::string_view target)>& may_replace) const;
  // `path` relative to the root, without links: usr/lib/libcuda.so.1 ->
  // usr/lib/nvidia/libcuda.so.550.54.15. NOT_FOUND.
  Result<std::string> RealPath(const std::string& path) const;
  // The sorted names in a directory for which `is_wanted` returns true; directories may have
  // thousands. NOT_FOUND.
  Result<std::vector<std::string>> List(
      const std::string& path, const std::function<bool(std::string_view)>& is_wanted =
                                   [](std::string_view) { return true; }) const;
  // The host's path of `path`, with links resolved inside the root. NOT_FOUND; INVALID_ARGUMENT if
  // it is neither a regular file nor a socket.
  Result<std::string> HostPath(const std::string& path) const;

 private:
  explicit RootedDir(DirFd dir) : dir_(std::move(dir)) {}
  Result<Fd> Resolve(const std::string& path, uint64_t flags, Links links) const;

  DirFd dir_;
};

}  // namespace tessera::oci
