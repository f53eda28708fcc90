// SPDX-License-Identifier: Apache-2.0
// Replaces a file that an engine wrote for one start: the config.json of a bundle, or the process
// description of an exec. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::oci {

// `path` must exist; the new file gets its owner and mode. Readers see the old or the new file.
// Nothing is flushed to disk, because no engine starts from such a file after a crash. NOT_FOUND,
// PERMISSION_DENIED, RESOURCE_EXHAUSTED (full disk): the old file is unchanged.
Status ReplaceFile(const std::string& path, std::string_view data);

}  // namespace tessera::oci
