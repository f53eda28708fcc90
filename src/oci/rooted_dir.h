// SPDX-License-Identifier: Apache-2.0
// A folder that is a file system root of somebody else: a container's, or the driver's. Paths are
// resolved inside of it by the kernel (openat2), so no symbolic link leads out, whoever swaps it
// when. Needs Linux 5.6; UNIMPLEMENTED, with a message saying so, below. Any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/file.h"
#include "src/base/status.h"

namespace tessera::oci {

enum class Links {
  kInRoot,  // followed, but as if the folder were /
  kRefuse,  // any symbolic link on the way is an error
};

class RootedDir {
 public:
  static Result<RootedDir> Open(const std::string& path);

  const std::string& path() const { return dir_.path(); }

  // Opens for reading. NOT_FOUND; INVALID_ARGUMENT where a link is refused or the thing found is
  // not a regular file (it is not opened, so no FIFO blocks and no device is touched).
  Result<Fd> OpenFile(const std::string& path, Links links) const;
  // The same in fewer steps, for folders of the host: what is no regular file is opened and closed.
  Result<Fd> OpenTrustedFile(const std::string& path) const;
  Result<std::string> Read(const std::string& path, Links links, size_t max_size) const;
  bool HasDir(const std::string& path, Links links) const;
  bool Exists(const std::string& path) const;
  // There is not even a symbolic link of that name.
  bool IsMissing(const std::string& path) const;
  // Where the symbolic link at the end of `path` points to, as it is written.
  Result<std::string> ReadLink(const std::string& path) const;
  // Replaces or makes the regular file `path` in a folder that exists; no symbolic link is
  // followed. The file gets the owner of the one it replaces, else of its folder, and mode 0644.
  // Readers see the old or the new content; nothing is synced. INVALID_ARGUMENT where a link is on
  // the way or `path` is not a regular file; the error that the kernel gave where the file system
  // cannot be written.
  Status ReplaceFile(const std::string& path, std::string_view data) const;
  // `path` below the root, without links in it: usr/lib/libcuda.so.1 ->
  // usr/lib/nvidia/libcuda.so.550.54.15. NOT_FOUND.
  Result<std::string> RealPath(const std::string& path) const;
  // The names in a folder that `keep` says yes to, sorted; folders may have thousands. NOT_FOUND.
  Result<std::vector<std::string>> List(
      const std::string& path, const std::function<bool(std::string_view)>& keep =
                                   [](std::string_view) { return true; }) const;
  // The host's path of `path`, its links resolved inside the root. NOT_FOUND; INVALID_ARGUMENT
  // where it is neither a regular file nor a socket.
  Result<std::string> HostPath(const std::string& path) const;

 private:
  explicit RootedDir(DirFd dir) : dir_(std::move(dir)) {}
  Result<Fd> Resolve(const std::string& path, uint64_t flags, Links links) const;

  DirFd dir_;
};

}  // namespace tessera::oci
