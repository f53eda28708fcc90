// SPDX-License-Identifier: Apache-2.0
// The UUID of a GPU or MIG device, as text and as bytes. Threads: any.
#pragma once

#include <stdint.h>

namespace tessera::limiter {

// Reads the 16 bytes after "GPU-" or "MIG-", with dashes anywhere. False: the text is no UUID.
bool ParseUuid(const char* text, uint8_t (&uuid)[16]);

}  // namespace tessera::limiter
