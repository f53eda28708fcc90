// SPDX-License-Identifier: Apache-2.0
// A small directory in the bundle for the files of one container: its ld.so.cache and, if the host
// has no shared tree, mount points for driver files. It is removed with the bundle, so nothing
// remains in the image's layer. If it exists, the container was given GPUs. The caller's umask
// applies. Blocks on disk access; threads: one.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/oci/tree.h"

namespace tessera::oci {

class Stage {
 public:
  // Creates <bundle>/tessera, replacing the stage of an earlier start of the same bundle. `label`:
  // SELinux label of new files, empty without SELinux.
  static Result<Stage> Make(const std::string& bundle, const std::string& label = "");
  static std::string PathIn(const std::string& bundle);

  const std::string& path() const { return path_; }

  // Creates the tree, with empty files as mount points for driver files. Returns its path.
  Result<std::string> AddTree(const Tree& tree);
  // Creates a file beside the tree. Returns its path.
  Result<std::string> AddFile(const std::string& name, std::string_view data);
  // Gives the container's label to a file of the host that only this container reads.
  Status SetLabel(const std::string& path) const;

 private:
  Stage(std::string path, std::string label) : path_(std::move(path)), label_(std::move(label)) {}

  std::string path_;
  std::string label_;
};

}  // namespace tessera::oci
