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

constexpr size_t kMaxFile = 4 << 20;

// One character of an assignment, and whether a preceding "\" takes away its special meaning.
struct MarkedCharacter {
  char character;
  bool plain;
  bool Is(char wanted) const { return !plain && character == wanted; }
};
using Marks = std::vector<MarkedCharacter>;

Marks MarksOf(const std::string& text) {
  Marks marks;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    if (escaped) ++i;
    marks.push_back({text[i], escaped});
  }
  return marks;
}

std::string TextOf(const Marks& marks) {
  std::string text;
  for (const MarkedCharacter& mark : marks) text += mark.character;
  return text;
}

// Splits at `separator`, but not inside braces.
std::vector<Marks> Split(const Marks& marks, char separator) {
  std::vector<Marks> parts(1);
  int depth = 0;
  for (const MarkedCharacter& mark : marks) {
    if (mark.Is('{')) ++depth;
    if (mark.Is('}')) --depth;
    if (mark.Is(separator) && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(mark);
    }
  }
  return parts;
}

// A value in double quotes is a text, also if it looks like a number.
Json ScalarOf(const Marks& marks) {
  if (marks.size() >= 2 && marks.front().Is('"') && marks.back().Is('"')) {
    return Json::String(TextOf(Marks(marks.begin() + 1, marks.end() - 1)));
  }
  const std::string text = TextOf(marks);
  if (text == "true" || text == "false") return Json::Bool(text == "true");
  if (text == "null") return {};
  const Result<Json> number = ParseJson(text);
  if (number.ok() && number->is_number() && number->ToInt().ok()) return *number;
  return Json::String(text);
}

Json ValueOf(const Marks& marks) {
  if (marks.size() < 2 || !marks.front().Is('{') || !marks.back().Is('}')) return ScalarOf(marks);
  Json list = Json::MakeArray();
  if (marks.size() == 2) return list;
  for (const Marks& item : Split(Marks(marks.begin() + 1, marks.end() - 1), ',')) {
    list.Append(ScalarOf(item));
  }
  return list;
}

Result<Json> ParseAssignment(const Marks& marks) {
  Marks name;
  size_t at = 0;
  while (at < marks.size() && !marks[at].Is('=')) name.push_back(marks[at++]);
  const auto invalid = [&](std::string_view why) {
    return Error(Code::kInvalidArgument,
                 "--set {}: {}: want NAME=VALUE, such as agent.driverRoot=/", TextOf(marks), why);
  };
  if (at == marks.size()) return invalid("no \"=\"");
  Json value = ValueOf(Marks(marks.begin() + static_cast<ptrdiff_t>(at) + 1, marks.end()));
  std::vector<Marks> keys = Split(name, '.');
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
  return file == "-" ? ReadFile("/dev/stdin", kMaxFile) : ReadFile(file, kMaxFile);
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
  for (const Marks& marks : Split(MarksOf(text), ',')) {
    ASSIGN_OR_RETURN(const Json change, ParseAssignment(marks));
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
