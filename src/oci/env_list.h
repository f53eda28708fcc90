// SPDX-License-Identifier: Apache-2.0
// The environment of a process in an OCI document: a JSON array of NAME=VALUE. Both types point
// into the document, which must outlive them. Where a name stands twice the last entry counts, as
// it does for the program that runc or crun starts. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/formats/json.h"

namespace tessera::oci {

// To read.
class EnvView {
 public:
  // Null, or what is no array, is an empty environment.
  explicit EnvView(const Json* list);

  std::optional<std::string> Get(std::string_view name) const;
  // Name and value of every entry whose name starts so, in order.
  std::vector<std::pair<std::string, std::string>> GetPrefix(std::string_view prefix) const;

 private:
  const Json* list_;
};

// To read and to change.
class EnvList : public EnvView {
 public:
  // `list` is an array.
  explicit EnvList(Json* list) : EnvView(list), list_(list) {}

  void Set(std::string_view name, std::string_view value);
  // Of PATH and its like: puts `folder` at the end, once. A variable that is missing starts as
  // `otherwise`.
  void AppendFolder(std::string_view name, std::string_view folder,
                    std::string_view otherwise = "");

 private:
  Json* list_;
};

}  // namespace tessera::oci
