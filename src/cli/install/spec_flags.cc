// SPDX-License-Identifier: Apache-2.0
#include "src/cli/install/spec_flags.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "api/names.h"
#include "src/base/file.h"
#include "src/components/settings.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;

// One character of an assignment, and whether it is escaped by a preceding "\".
struct EscapedCharacter {
  char character;
  bool escaped;
  bool Is(char wanted) const { return !escaped && character == wanted; }
};
using EscapedText = std::vector<EscapedCharacter>;

EscapedText DecodeEscapes(const std::string& text) {
  EscapedText input;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    if (escaped) ++i;
    input.push_back({text[i], escaped});
  }
  return input;
}

std::string TextOf(const EscapedText& input) {
  std::string text;
  for (const EscapedCharacter& c : input) text += c.character;
  return text;
}

// Splits at `separator`, but not inside braces.
std::vector<EscapedText> Split(const EscapedText& input, char separator) {
  std::vector<EscapedText> parts(1);
  int depth = 0;
  for (const EscapedCharacter& c : input) {
    if (c.Is('{')) ++depth;
    if (c.Is('}')) --depth;
    if (c.Is(separator) && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

// A value in double quotes is a string, even if it looks like a number.
Json ScalarOf(const EscapedText& input) {
  if (input.size() >= 2 && input.front().Is('"') && input.back().Is('"')) {
    return Json::String(TextOf(EscapedText(input.begin() + 1, input.end() - 1)));
  }
  const std::string text = TextOf(input);
  if (text == "true" || text == "false") return Json::Bool(text == "true");
  if (text == "null") return {};
  const Result<Json> number = ParseJson(text);
  if (number.ok() && number->is_number() && number->ToInt().ok()) return *number;
  return Json::String(text);
}

Json ValueOf(const EscapedText& input) {
  if (input.size() < 2 || !input.front().Is('{') || !input.back().Is('}')) return ScalarOf(input);
  Json list = Json::MakeArray();
  if (input.size() == 2) return list;
  for (const EscapedText& item : Split(EscapedText(input.begin() + 1, input.end() - 1), ',')) {
    list.Append(ScalarOf(item));
  }
  return list;
}

Result<Json> ParseAssignment(const EscapedText& input) {
  EscapedText name;
  size_t at = 0;
  while (at < input.size() && !input[at].Is('=')) name.push_back(input[at++]);
  const auto invalid = [&](std::string_view why) {
    return Error(Code::kInvalidArgument,
                 "--set {}: {}: want NAME=VALUE, such as agent.driverRoot=/", TextOf(input), why);
  };
  if (at == input.size()) return invalid("no \"=\"");
  Json value = ValueOf(EscapedText(input.begin() + static_cast<ptrdiff_t>(at) + 1, input.end()));
  std::vector<EscapedText> keys = Split(name, '.');
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    if (key->empty()) return invalid("a part of the name is empty");
    if (key->back().Is(']')) return invalid("items of lists cannot be set: use -f FILE");
    value = Json::MakeObject({{TextOf(*key), std::move(value)}});
  }
  return value;
}

// Whether the file is a resource of kind Tessera, as `tessera migrate -o yaml` prints it.
bool IsResource(const Json& values) {
  return values.is_object() && values.StringAt("kind").value_or("") == names::kCustomResourceKind &&
         values.Find("spec") != nullptr;
}

Result<std::string> ReadText(const std::string& file) {
  return file == "-" ? ReadFile("/dev/stdin", kMaxFileBytes) : ReadFile(file, kMaxFileBytes);
}

}  // namespace

void AddSpecOptions(CLI::App* app, SpecOptions* options) {
  app->add_option("-f,--values", options->files,
                  "YAML file with settings, as of the chart; several are merged")
      ->option_text("FILE");
  app->add_option(
         "--set", options->assignments,
         "one setting, or several with commas: scheduler.replicas=3,limits.failOpen={a,b}; "
         "a text that looks like a number in quotes: 'driver.version=\"550\"'")
      ->option_text("NAME=VALUE");
}

Json CombineSpecs(const Json& spec, const Json& changes) {
  if (!spec.is_object() || !changes.is_object()) return changes;
  Json merged = spec;
  for (const auto& [key, value] : changes.members()) {
    const Json* before = merged.Find(key);
    merged.Set(key, before != nullptr ? CombineSpecs(*before, value) : value);
  }
  return merged;
}

Result<Json> ParseAssignments(const std::string& text) {
  Json spec = Json::MakeObject();
  for (const EscapedText& input : Split(DecodeEscapes(text), ',')) {
    ASSIGN_OR_RETURN(const Json change, ParseAssignment(input));
    spec = CombineSpecs(spec, change);
  }
  return spec;
}

Result<Json> ReadSpec(const std::vector<std::string>& files,
                      const std::vector<std::string>& assignments) {
  Json spec = Json::MakeObject();
  for (const std::string& file : files) {
    const Result<std::string> text = ReadText(file);
    if (!text.ok()) {
      return Error(Code::kInvalidArgument, "-f {}: {}", file, text.status().message());
    }
    ASSIGN_OR_RETURN(Json values, ParseYaml(*text).Annotate("-f " + file));
    if (IsResource(values)) values = *values.Find("spec");
    if (values.is_null()) continue;
    // Each file is checked before it is merged, so that an error names the file and its line.
    RETURN_IF_ERROR(components::CheckSpec(values).Annotate("-f " + file));
    spec = CombineSpecs(spec, values);
  }
  for (const std::string& assignment : assignments) {
    ASSIGN_OR_RETURN(const Json values, ParseAssignments(assignment));
    RETURN_IF_ERROR(components::CheckSpec(values).Annotate("--set " + assignment));
    spec = CombineSpecs(spec, values);
  }
  return spec;
}

}  // namespace tessera::cli
