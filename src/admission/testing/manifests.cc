// SPDX-License-Identifier: Apache-2.0
#include "src/admission/testing/manifests.h"

#include <cstdlib>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/yaml.h"

namespace tessera::admission::testing {

std::string ManifestText(const std::string& name) {
  const char* root = std::getenv("TESSERA_SOURCE_DIR");
  if (root == nullptr) root = TESSERA_BUILT_FROM;
  const std::string path = fmt::format("{}/deploy/chart/templates/{}", root, name);
  const std::string text = ReadFile(path, size_t{1} << 20).value();
  std::string without_actions;
  for (const std::string_view line : Split(text, '\n')) {
    if (!Trim(line).starts_with("{{")) without_actions.append(line) += '\n';
  }
  return without_actions;
}

std::vector<Json> ReadManifest(const std::string& name) {
  std::vector<Json> documents;
  std::string rest = ManifestText(name);
  for (size_t at = 0; at != std::string::npos;) {
    const size_t end = rest.find("\n---\n", at);
    documents.push_back(ParseYaml(rest.substr(at, end - at)).value());
    at = end == std::string::npos ? end : end + 5;
  }
  return documents;
}

}  // namespace tessera::admission::testing
