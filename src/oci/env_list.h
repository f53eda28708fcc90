// SPDX-License-Identifier: Apache-2.0
// The environment of a process in an OCI document: a JSON array of NAME=VALUE. Both types refer to
// the document, which must outlive them. If a name occurs twice the last entry counts, as for the
// program that runc or crun starts. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/formats/json.h"

namespace tessera::oci {

// Read access.
class EnvView {
 public:
  // The environment is empty if `list` is null or not an array.
  explicit EnvView(const Json* list);

  std::optional<std::string> Get(std::string_view name) const;
  // Name and value of every entry whose name has this prefix, in order.
  std::vector<std::pair<std::string, std::string>> FindByPrefix(std::string_view prefix) const;

 private:
  const Json* list_;
};

// Read and write access.
class EnvList : public EnvView {
 public:
  // REQUIRES: `list` is an array.
  explicit EnvList(Json* list) : EnvView(list), list_(list) {}

  void Set(std::string_view name, std::string_view value);
  // For PATH and similar variables: appends `dir` unless present. A missing variable starts as
  // `default_list`.
  void AppendDir(std::string_view name, std::string_view dir, std::string_view default_list = "");
  // For LD_PRELOAD and LD_AUDIT, lists of files between colons or spaces: removes files below
  // `dir`.
  void RemoveFilesBelow(std::string_view name, std::string_view dir);

 private:
  Json* list_;
};

}  // namespace tessera::oci
