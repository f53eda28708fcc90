// SPDX-License-Identifier: Apache-2.0
#include "src/components/deploy_text.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/strings.h"
#include "src/components/deploy_files.h"
#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

constexpr std::string_view kSeparator = "\n---\n";

Json ParseOrDie(std::string_view path, std::string_view text) {
  Result<Json> json = ParseYaml(text);
  if (!json.ok()) {
    CheckFailed(__FILE__, __LINE__, fmt::format("deploy/{}: {}", path, json.status().message()));
  }
  return *std::move(json);
}

// Leaves out documents that consist only of comments.
std::vector<Json> Documents(std::string_view path, std::string_view text) {
  std::vector<Json> documents;
  while (!text.empty()) {
    const size_t end = text.find(kSeparator);
    Json document = ParseOrDie(path, text.substr(0, end));
    if (!document.is_null()) documents.push_back(std::move(document));
    text = end == std::string_view::npos ? "" : text.substr(end + kSeparator.size());
  }
  return documents;
}

std::string WithoutDirectives(std::string_view text) {
  std::string out;
  for (const std::string_view line : Split(text, '\n')) {
    if (line.find("{{") == std::string_view::npos)
      fmt::format_to(std::back_inserter(out), "{}\n", line);
  }
  return out;
}

void EraseNulls(Json& json) {
  if (json.is_array()) {
    for (Json& item : json.items()) EraseNulls(item);
  } else if (json.is_object()) {
    std::erase_if(json.members(),
                  [](const Json::Member& member) { return member.second.is_null(); });
    for (auto& [name, value] : json.members()) EraseNulls(value);
  }
}

}  // namespace

std::string_view DeployText(std::string_view path) {
  for (const DeployFile* file = kDeployFiles; !file->path.empty(); ++file) {
    if (file->path == path) return file->text;
  }
  CheckFailed(__FILE__, __LINE__, fmt::format("deploy/{} is not compiled in", path));
}

std::vector<std::string_view> DeployPaths(std::string_view prefix) {
  std::vector<std::string_view> paths;
  for (const DeployFile* file = kDeployFiles; !file->path.empty(); ++file) {
    if (file->path.starts_with(prefix)) paths.push_back(file->path);
  }
  std::ranges::sort(paths);
  return paths;
}

Json ParsedYaml(std::string_view path) { return ParseOrDie(path, DeployText(path)); }

std::vector<Json> ParsedDocuments(std::string_view path) {
  return Documents(path, DeployText(path));
}

std::vector<Json> ChartObjects(std::string_view name) {
  const std::string path = fmt::format("chart/templates/{}.yaml", name);
  std::vector<Json> objects = Documents(path, WithoutDirectives(DeployText(path)));
  for (Json& object : objects) EraseNulls(object);
  return objects;
}

Json ChartObject(std::string_view name) {
  std::vector<Json> objects = ChartObjects(name);
  TESSERA_CHECK(objects.size() == 1);
  return std::move(objects.front());
}

}  // namespace tessera::components
