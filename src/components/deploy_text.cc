// SPDX-License-Identifier: Apache-2.0
#include "src/components/deploy_text.h"

#include <algorithm>

#include "src/components/deploy_files.h"
#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

constexpr std::string_view kSeparator = "\n---\n";

Json Parsed(std::string_view path, std::string_view text) {
  Result<Json> json = ParseYaml(text);
  if (!json.ok()) {
    CheckFailed(__FILE__, __LINE__, fmt::format("deploy/{}: {}", path, json.status().message()));
  }
  return *std::move(json);
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

Json ParsedYaml(std::string_view path) { return Parsed(path, DeployText(path)); }

std::vector<Json> ParsedDocuments(std::string_view path) {
  std::vector<Json> documents;
  std::string_view text = DeployText(path);
  while (!text.empty()) {
    const size_t end = text.find(kSeparator);
    documents.push_back(Parsed(path, text.substr(0, end)));
    text = end == std::string_view::npos ? "" : text.substr(end + kSeparator.size());
  }
  return documents;
}

}  // namespace tessera::components
