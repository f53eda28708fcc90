// SPDX-License-Identifier: Apache-2.0
// A small folder in the bundle that becomes /dev/tessera in the container: places to mount driver
// files on, the links beside them, and the ld.so.cache. It goes with the bundle, so nothing is left
// in the image's layer. Blocks on the disk; threads: one.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::oci {

class Stage {
 public:
  // Makes <bundle>/tessera anew; what an earlier start of the same bundle left there goes.
  static Result<Stage> Make(const std::string& bundle);
  static std::string PathIn(const std::string& bundle);

  const std::string& path() const { return path_; }
  std::string tree() const { return path_ + "/tree"; }

  // `name` is relative to the tree; folders on the way are made. An existing name is kept: the first
  // of two wins.
  Status AddPlace(const std::string& name);
  Status AddFolder(const std::string& name);
  Status AddLink(const std::string& name, const std::string& target);
  // A file beside the tree. Gives its path.
  Result<std::string> AddFile(const std::string& name, std::string_view data);

 private:
  explicit Stage(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace tessera::oci
