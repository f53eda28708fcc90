// SPDX-License-Identifier: Apache-2.0
// A small folder in the bundle for what is this container's alone: its ld.so.cache, and where the
// host has no shared tree the places to mount driver files on. It goes with the bundle, so nothing
// is left in the image's layer. Its presence says that the container was given GPUs. The caller's
// umask applies. Blocks on the disk; threads: one.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/oci/tree.h"

namespace tessera::oci {

class Stage {
 public:
  // Makes <bundle>/tessera anew; what an earlier start of the same bundle left there goes.
  // `label`: SELinux's for what is made, empty without SELinux.
  static Result<Stage> Make(const std::string& bundle, const std::string& label = "");
  static std::string PathIn(const std::string& bundle);

  const std::string& path() const { return path_; }

  // Makes the tree; driver files are empty in it, to be mounted on. Gives its path.
  Result<std::string> AddTree(const Tree& tree);
  // A file beside it. Gives its path.
  Result<std::string> AddFile(const std::string& name, std::string_view data);
  // Gives a file of the host that this container alone reads the container's label.
  Status Label(const std::string& path) const;

 private:
  Stage(std::string path, std::string label) : path_(std::move(path)), label_(std::move(label)) {}

  std::string path_;
  std::string label_;
};

}  // namespace tessera::oci
