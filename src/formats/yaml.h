// SPDX-License-Identifier: Apache-2.0
// One YAML document as a Json value, for files that people write: profiles, kubeconfig. Plain
// scalars become null, booleans and numbers by the JSON schema of YAML 1.2; quoted ones stay
// strings. Refused with a line: anchors and aliases, tags, several documents, keys that stand twice
// or are not scalars. Every value knows its line.
#pragma once

#include <string_view>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera {

// INVALID_ARGUMENT with the line. An empty text gives null.
Result<Json> ParseYaml(std::string_view text);

}  // namespace tessera
