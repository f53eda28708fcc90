// SPDX-License-Identifier: Apache-2.0
// YAML documents as Json values: reads files that people write (profiles, kubeconfig) and writes
// what people asked for in YAML. Plain scalars become null, booleans and numbers by the JSON schema
// of YAML 1.2; quoted ones stay strings. Refused with a line: anchors and aliases, tags, several
// documents, keys that stand twice or are not scalars. Every value knows its line.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera {

// INVALID_ARGUMENT with the line. An empty text gives null.
Result<Json> ParseYaml(std::string_view text);

// The document in block style, with a line end; ParseYaml gives it back. Texts are quoted where
// they would be read as something else, control characters are escaped. REQUIRES: texts are UTF-8.
std::string WriteYaml(const Json& document);

}  // namespace tessera
