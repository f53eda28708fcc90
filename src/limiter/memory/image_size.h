// SPDX-License-Identifier: Apache-2.0
// Computes the device memory of a module's variables from its image: from the sections of a cubin,
// or from the .global statements of PTX text. Fat binaries are compressed, so their variables are
// unknown. Reads only parts of the image that the driver also reads when it loads the image.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::limiter {

// `max_image_bytes` is the largest size that the image can have; SIZE_MAX: only the format of the
// image tells its end. Returns 0 if the size of the variables is unknown.
uint64_t VariableBytesOf(const void* image, size_t max_image_bytes);

}  // namespace tessera::limiter
