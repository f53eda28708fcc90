// SPDX-License-Identifier: Apache-2.0
// Changes a few keys of an existing TOML text and keeps every other byte: comments, order, spacing,
// line ends, a missing last newline. New keys are formatted like their neighbors.
//
// Every patch is verified before it is returned: the text is parsed before and after, and the
// difference must be exactly the edits; otherwise INTERNAL without a text. Not a formatter.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera {

// Values are strings, numbers, booleans and arrays of them; a table is set key by key.
// INVALID_ARGUMENT: the text does not parse, or the path of an edit contains a value that is not a
// table or array. Edits that are already in effect leave the text unchanged.
Result<std::string> PatchToml(std::string_view text, const std::vector<TextEdit>& edits);

// `plugins."io.containerd.grpc.v1.cri".containerd`, for messages and headers.
std::string TomlKeyText(const KeyPath& path);

}  // namespace tessera
