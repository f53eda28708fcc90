// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/jsonpath.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "src/base/strings.h"
#include "src/cli/output/jsonpath_steps.h"

namespace tessera::cli {
namespace {

using Values = std::vector<const Json*>;

Result<Values> Walk(const PathSteps& steps, Values values);

void AddChildren(const Json& value, Values* children) {
  if (value.is_array()) {
    for (const Json& item : value.items()) children->push_back(&item);
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.members()) children->push_back(&member);
  }
}

// Appends each non-empty list and object among `values` and below them, parents first.
void AddContainers(const Values& values, Values* found) {
  for (const Json* value : values) {
    Values children;
    AddChildren(*value, &children);
    if (children.empty()) continue;
    found->push_back(value);
    AddContainers(children, found);
  }
}

Status SliceOf(const Json& list, const SliceStep& slice, Values* found) {
  const auto size = static_cast<int64_t>(list.items().size());
  int64_t begin = slice.begin.value_or(0), end = slice.end.value_or(size);
  if (begin < 0) begin += size;
  if (end < 0 || (end == 0 && slice.is_index)) end += size;
  if (begin == end) return Status::Ok();
  for (const int64_t bound : {begin, end - 1}) {
    if (bound >= 0 && bound < size) continue;
    return Error(Code::kInvalidArgument, "index {} is out of bounds: the list has {} items", bound,
                 size);
  }
  if (begin > end) {
    return Error(Code::kInvalidArgument, "the slice begins at {} and ends at {}", begin, end);
  }
  const int64_t step = slice.step.value_or(1);
  if (step <= 0) return Error(Code::kInvalidArgument, "step {} of a slice: want 1 or more", step);
  for (int64_t i = begin; i < end; i += std::min(step, size)) found->push_back(&list.items()[i]);
  return Status::Ok();
}

bool IsInteger(const Json& value) {
  return value.is_number() && value.number_text().find_first_of(".eE") == std::string::npos;
}

// Returns a negative number, 0 or a positive number. As in kubectl, values of different types
// cannot be compared.
Result<int> Compare(const Json& left, const Json& right) {
  if (left.is_string() && right.is_string()) {
    return left.string_value().compare(right.string_value());
  }
  if (left.is_number() && right.is_number() && IsInteger(left) == IsInteger(right)) {
    ASSIGN_OR_RETURN(const double a, left.ToDouble());
    ASSIGN_OR_RETURN(const double b, right.ToDouble());
    return a < b ? -1 : a > b ? 1 : 0;
  }
  if (left.kind() == Json::Kind::kBool && right.kind() == Json::Kind::kBool) {
    return static_cast<int>(left.bool_value()) - static_cast<int>(right.bool_value());
  }
  return Error(Code::kInvalidArgument, "a filter compares {} with {}", TextOfValue(left),
               TextOfValue(right));
}

Result<bool> Matches(const Json& item, const FilterStep& filter) {
  ASSIGN_OR_RETURN(const Values left, Walk(filter.left, {&item}));
  if (filter.comparison.empty()) return !left.empty();
  ASSIGN_OR_RETURN(const Values right, Walk(filter.right, {&item}));
  if (left.empty() || right.empty()) return false;
  if (left.size() > 1 || right.size() > 1) {
    return Error(Code::kInvalidArgument, "a filter can compare one value with one value only");
  }
  ASSIGN_OR_RETURN(const int order, Compare(*left[0], *right[0]));
  const std::string& comparison = filter.comparison;
  if (comparison == "==") return order == 0;
  if (comparison == "!=") return order != 0;
  if (comparison == "<") return order < 0;
  if (comparison == "<=") return order <= 0;
  return comparison == ">" ? order > 0 : order >= 0;
}

// Applies one step to all values.
struct StepWalker {
  const Values& values;

  Result<Values> operator()(const FieldStep& field) const {
    Values found;
    for (const Json* value : values) {
      if (const Json* member = value->Find(field.name)) found.push_back(member);
    }
    return found;
  }
  Result<Values> operator()(const WildcardStep&) const {
    Values found;
    for (const Json* value : values) AddChildren(*value, &found);
    return found;
  }
  Result<Values> operator()(const RecursiveStep&) const {
    Values found;
    AddContainers(values, &found);
    return found;
  }
  Result<Values> operator()(const SliceStep& slice) const {
    Values found;
    for (const Json* value : values) {
      if (value->is_null()) continue;
      if (!value->is_array()) {
        return Error(Code::kInvalidArgument, "{} is no list", TextOfValue(*value));
      }
      RETURN_IF_ERROR(SliceOf(*value, slice, &found));
    }
    return found;
  }
  Result<Values> operator()(const UnionStep& all) const {
    Values found;
    for (const PathSteps& member : all.members) {
      ASSIGN_OR_RETURN(const Values some, Walk(member, values));
      found.insert(found.end(), some.begin(), some.end());
    }
    return found;
  }
  Result<Values> operator()(const FilterStep& filter) const {
    Values found;
    for (const Json* value : values) {
      if (!value->is_array()) {
        return Error(Code::kInvalidArgument, "{} is no list and cannot be filtered",
                     TextOfValue(*value));
      }
      for (const Json& item : value->items()) {
        ASSIGN_OR_RETURN(const bool passes, Matches(item, filter));
        if (passes) found.push_back(&item);
      }
    }
    return found;
  }
  Result<Values> operator()(const LiteralStep& literal) const {
    return Values(values.size(), &literal.value);
  }
};

Result<Values> Walk(const PathSteps& steps, Values values) {
  for (const PathStep& step : steps) {
    ASSIGN_OR_RETURN(values, std::visit(StepWalker{values}, step.step));
  }
  return values;
}

std::string TextOfValues(const Values& values) {
  std::string text;
  for (const Json* value : values) {
    if (value != values.front()) text += ' ';
    text += TextOfValue(*value);
  }
  return text;
}

Status RenderBlock(const JsonPath::Block& block, const Json& document, std::string* out) {
  for (const JsonPath::Block::Part& part : block.parts) {
    if (part.is_text) {
      *out += part.text;
      continue;
    }
    ASSIGN_OR_RETURN(const Values values, Walk(part.steps, {&document}));
    if (part.body == nullptr) {
      *out += TextOfValues(values);
      continue;
    }
    for (const Json* value : values) RETURN_IF_ERROR(RenderBlock(*part.body, *value, out));
  }
  return Status::Ok();
}

Status FindInBlock(const JsonPath::Block& block, const Json& document, Values* found) {
  for (const JsonPath::Block::Part& part : block.parts) {
    if (part.is_text) continue;
    ASSIGN_OR_RETURN(const Values values, Walk(part.steps, {&document}));
    if (part.body == nullptr) {
      found->insert(found->end(), values.begin(), values.end());
      continue;
    }
    for (const Json* value : values) RETURN_IF_ERROR(FindInBlock(*part.body, *value, found));
  }
  return Status::Ok();
}

// The two ways in which Go writes numbers.
enum class GoFormat : uint8_t {
  kJson,  // encoding/json: an exponent below 1e-6 and from 1e21
  kText,  // fmt: an exponent below 1e-4 and from 1e6
};

// The number in Go's shortest form.
std::string NumberText(const Json& value, GoFormat format) {
  if (IsInteger(value)) return value.number_text();
  const Result<double> number = value.ToDouble();
  if (!number.ok()) return value.number_text();
  const bool is_json = format == GoFormat::kJson;
  const double magnitude = std::abs(*number);
  const bool plain = magnitude == 0 ||
                     (magnitude >= (is_json ? 1e-6 : 1e-4) && magnitude < (is_json ? 1e21 : 1e6));
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), *number,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string out(text, end.ptr);
  // encoding/json writes e-7 where fmt and std::to_chars write e-07.
  const size_t exponent = is_json ? out.find("e-0") : std::string::npos;
  if (exponent != std::string::npos) out.erase(exponent + 2, 1);
  return out;
}

// Go's encoder also escapes the characters '<', '>' and '&' of HTML.
void AppendGoString(std::string_view text, std::string* out) {
  std::string quoted;
  AppendJsonString(text, &quoted);
  for (const char c : quoted) {
    if (c == '<' || c == '>' || c == '&') {
      *out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      *out += c;
    }
  }
}

// Writes JSON as Go's encoding/json does: keys sorted, without white space.
void AppendSortedJson(const Json& value, std::string* out) {
  if (value.is_array()) {
    *out += '[';
    for (const Json& item : value.items()) {
      if (&item != &value.items().front()) *out += ',';
      AppendSortedJson(item, out);
    }
    *out += ']';
  } else if (value.is_object()) {
    std::map<std::string_view, const Json*> members;
    for (const auto& [key, member] : value.members()) members[key] = &member;
    *out += '{';
    for (const auto& [key, member] : members) {
      if (out->back() != '{') *out += ',';
      AppendGoString(key, out);
      *out += ':';
      AppendSortedJson(*member, out);
    }
    *out += '}';
  } else if (value.is_number()) {
    *out += NumberText(value, GoFormat::kJson);
  } else if (value.is_string()) {
    AppendGoString(value.string_value(), out);
  } else {
    *out += value.Serialize();
  }
}

}  // namespace

std::string TextOfValue(const Json& value) {
  if (value.is_string()) return value.string_value();
  if (value.is_number()) return NumberText(value, GoFormat::kText);
  std::string text;
  AppendSortedJson(value, &text);
  return text;
}

std::string ColumnTextOf(const Json& value) {
  if (value.is_null()) return "<nil>";
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value.items())
      text += fmt::format("{}{}", text.empty() ? "" : " ", ColumnTextOf(item));
    return fmt::format("[{}]", text);
  }
  if (!value.is_object()) return TextOfValue(value);
  std::map<std::string, std::string> members;
  for (const auto& [key, member] : value.members()) members[key] = ColumnTextOf(member);
  std::string text;
  for (const auto& [key, member] : members) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", key, member);
  }
  return fmt::format("map[{}]", text);
}

Result<JsonPath> JsonPath::Parse(std::string_view text) {
  JsonPath path;
  path.text_ = text;
  ASSIGN_OR_RETURN(path.root_, ParsePathTemplate(text).Annotate(fmt::format("JSONPath {}", text)));
  return path;
}

Result<JsonPath> JsonPath::ParseExpression(std::string_view text) {
  std::string_view inside = text;
  if (inside.size() >= 2 && inside.front() == '{' && inside.back() == '}') {
    inside = inside.substr(1, inside.size() - 2);
  }
  if (inside.starts_with('.')) inside.remove_prefix(1);
  if (inside.empty() || inside.find_first_of("{}") != std::string_view::npos) {
    return Error(Code::kInvalidArgument, "invalid path \"{}\": want one like .metadata.name", text);
  }
  return Parse(fmt::format("{{.{}}}", inside));
}

Result<std::string> JsonPath::Render(const Json& document) const {
  std::string text;
  const Status status = RenderBlock(*root_, document, &text);
  if (!status.ok()) return status.Annotate("JSONPath " + text_);
  return text;
}

Result<std::vector<const Json*>> JsonPath::Find(const Json& document) const {
  Values found;
  const Status status = FindInBlock(*root_, document, &found);
  if (!status.ok()) return status.Annotate("JSONPath " + text_);
  return found;
}

}  // namespace tessera::cli
