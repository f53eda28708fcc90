// SPDX-License-Identifier: Apache-2.0
// Changes a few keys of a TOML text that a person wrote and leaves every other byte alone:
// comments, order, spacing, line ends, a missing last newline. What is added takes the look of its
// neighbours.
//
// A patch is proved before it is handed out: the text is parsed before and after, and the
// difference must be the edits and nothing else; else INTERNAL, and no text. Not for making texts
// look nice. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera {

// Values are strings, numbers, booleans and arrays of them; a table is set key by key.
// INVALID_ARGUMENT: the text does not parse, or an edit goes through something that is no table or
// no array. Editing a text into what it is already gives the same bytes.
Result<std::string> PatchToml(std::string_view text, const std::vector<TextEdit>& edits);

// `plugins."io.containerd.grpc.v1.cri".containerd`: for messages and for headers.
std::string TomlKeyText(const KeyPath& path);

}  // namespace tessera
