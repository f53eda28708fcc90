// SPDX-License-Identifier: Apache-2.0
#include "src/admission/testing/manifests.h"

#include <cstdlib>

#include "src/base/file.h"
#include "src/formats/yaml.h"

namespace tessera::admission::testing {

std::string ManifestText(const std::string& name) {
  const char* root = std::getenv("TESSERA_SOURCE_DIR");
  if (root == nullptr) root = TESSERA_BUILT_FROM;
  return ReadFile(fmt::format("{}/deploy/manifests/{}", root, name), size_t{1} << 20).value();
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
