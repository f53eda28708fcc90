// SPDX-License-Identifier: Apache-2.0
// Reads YAML documents written by users (profiles, kubeconfig) into Json, and writes Json as YAML.
// Plain scalars become null, booleans and numbers by the JSON schema of YAML 1.2; quoted scalars
// stay strings. Rejected, with a line: anchors and aliases, tags, several documents, and keys that
// are repeated or not scalars. Each value has its line (Json::line). Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera {

// INVALID_ARGUMENT with the line. An empty text is null.
Result<Json> ParseYaml(std::string_view text);

// Writes the document in block style with a final line end; ParseYaml restores it. Quotes texts
// that would be read as another type and escapes control characters. REQUIRES: texts are UTF-8.
std::string WriteYaml(const Json& document);

}  // namespace tessera
