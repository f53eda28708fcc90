// SPDX-License-Identifier: Apache-2.0
// How much device memory the variables of a module take, as its image states it: the sections of a
// cubin, or the .global statements of PTX text. Fat binaries are compressed and state nothing.
// Pure; reads the image as far as the driver does.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::limiter {

// `most` bounds the image's size; SIZE_MAX: the image ends where its format says. 0: unknown.
uint64_t VariableBytesOf(const void* image, size_t most);

}  // namespace tessera::limiter
