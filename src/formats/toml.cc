// SPDX-License-Identifier: Apache-2.0
#include "src/formats/toml.h"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <cmath>
#include <sstream>
#include <string>

#include "src/base/strings.h"

namespace tessera {
namespace {

Json FromNode(const toml::node& node);

Json FromFloat(double value) {
  if (!std::isfinite(value)) return Json::String(fmt::format("{}", value));
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return Json::NumberText(std::move(text));
}

Json FromTable(const toml::table& table) {
  Json json = Json::MakeObject();
  for (const auto& [key, node] : table) {
    json.members().emplace_back(std::string(key.str()), FromNode(node));
  }
  return json;
}

Json FromArray(const toml::array& array) {
  Json json = Json::MakeArray();
  for (const toml::node& node : array) json.Append(FromNode(node));
  return json;
}

Json FromNode(const toml::node& node) {
  Json json;
  if (const auto* table = node.as_table()) {
    json = FromTable(*table);
  } else if (const auto* array = node.as_array()) {
    json = FromArray(*array);
  } else if (const auto* text = node.as_string()) {
    json = Json::String(text->get());
  } else if (const auto* number = node.as_integer()) {
    json = Json::Int(number->get());
  } else if (const auto* real = node.as_floating_point()) {
    json = FromFloat(real->get());
  } else if (const auto* flag = node.as_boolean()) {
    json = Json::Bool(flag->get());
  } else {
    std::ostringstream stream;
    if (const auto* date = node.as_date()) stream << date->get();
    if (const auto* time = node.as_time()) stream << time->get();
    if (const auto* both = node.as_date_time()) stream << both->get();
    json = Json::String(stream.str());
  }
  json.set_line(static_cast<int>(node.source().begin.line));
  return json;
}

}  // namespace

Result<Json> ParseToml(std::string_view text) {
  // The library accepts invalid UTF-8 inside comments; the container engines do not.
  if (!IsValidUtf8(text)) return Error(Code::kInvalidArgument, "TOML: the text is not valid UTF-8");
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::source_position where = parsed.error().source().begin;
    return Error(Code::kInvalidArgument, "TOML: line {}, column {}: {}", where.line, where.column,
                 parsed.error().description());
  }
  return FromTable(parsed.table());
}

}  // namespace tessera
