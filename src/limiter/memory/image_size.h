// SPDX-License-Identifier: Apache-2.0
// The device memory of a module's variables, from its image: from the sections of a cubin, or from
// the .global statements of PTX text. Fat binaries are compressed, so their variables are unknown.
// Pure; reads the image as far as the driver does.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::limiter {

// `most` bounds the image's size; SIZE_MAX: the image ends where its format says. 0: unknown.
uint64_t VariableBytesOf(const void* image, size_t most);

}  // namespace tessera::limiter
