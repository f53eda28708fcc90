// SPDX-License-Identifier: Apache-2.0
// JSONPath templates in kubectl's dialect: text with expressions in braces, such as
// {range .items[*]}{.metadata.name}{"\n"}{end}. Fields, '*', '..', indices, slices, unions, filters
// and literals behave as in kubectl; a missing field gives nothing. Only two things differ: members
// keep the order of the document where kubectl's order is random, and a {range} without {end} is
// rejected.
//
// Threads: any number may read one JsonPath. Results point into the document and the template.
// Errors: INVALID_ARGUMENT, naming the template and the place.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::cli {

class JsonPath {
 public:
  // Parses a whole template, such as the value of -o jsonpath.
  static Result<JsonPath> Parse(std::string_view text);
  // Parses one expression, such as the value of --sort-by: ".a.b", "a.b" or "{.a.b}".
  static Result<JsonPath> ParseExpression(std::string_view text);

  // The template's text for this document.
  Result<std::string> Render(const Json& document) const;
  // The values of all expressions.
  Result<std::vector<const Json*>> Find(const Json& document) const;

  struct Block;  // part of the parsed template; only for src/cli/output

 private:
  std::string text_;
  std::shared_ptr<const Block> root_;
};

// A scalar as kubectl prints it; anything else as JSON with sorted keys.
std::string TextOfValue(const Json& value);
// A value as kubectl's custom-columns print it: lists as [a b], objects as map[k:v].
std::string ColumnTextOf(const Json& value);

}  // namespace tessera::cli
