// SPDX-License-Identifier: Apache-2.0
// The device memory of a module's variables, from its image: from the sections of a cubin, or from
// the .global statements of PTX text. Fat binaries are compressed, so their variables are unknown.
// Pure. Reads no part of the image that the driver would not read when it loads the image.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::limiter {

// `max_image_bytes`: the largest size that the image can have. With SIZE_MAX, the image ends where
// its format says. Returns 0 if the size of the variables is unknown.
uint64_t VariableBytesOf(const void* image, size_t max_image_bytes);

}  // namespace tessera::limiter
