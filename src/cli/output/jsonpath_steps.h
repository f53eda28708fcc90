// SPDX-License-Identifier: Apache-2.0
// The parsed form of a JSONPath template, between its parser and its evaluation. Included only in
// src/cli/output.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "src/cli/output/jsonpath.h"

namespace tessera::cli {

struct PathStep;
using PathSteps = std::vector<PathStep>;

struct FieldStep {
  std::string name;
};
struct WildcardStep {};
struct RecursiveStep {};
// [begin:end:step]. An index n is [n:n+1] with `is_index` set, so that -1 means the last item.
struct SliceStep {
  std::optional<int64_t> begin, end, step;
  bool is_index = false;
};
struct UnionStep {
  std::vector<PathSteps> members;
};
// Without a comparison the filter tests whether `left` exists.
struct FilterStep {
  PathSteps left, right;
  std::string comparison;
};
struct LiteralStep {
  Json value;
};

struct PathStep {
  std::variant<FieldStep, WildcardStep, RecursiveStep, SliceStep, UnionStep, FilterStep,
               LiteralStep>
      step;
};

// Texts, expressions and ranges, in the order of the template.
struct JsonPath::Block {
  struct Part {
    std::string text;                   // the text, if `is_text`
    PathSteps steps;                    // an expression, or the list of a range
    std::shared_ptr<const Block> body;  // the body of a range; null: not a range
    bool is_text = false;
  };
  std::vector<Part> parts;
};

Result<std::shared_ptr<const JsonPath::Block>> ParsePathTemplate(std::string_view text);

}  // namespace tessera::cli
