// SPDX-License-Identifier: Apache-2.0
// The files of the web page, built from web/ by scripts/web and compiled into the program.
#pragma once

#include <span>

#include "src/net/assets.h"

namespace tessera::console {

std::span<const net::Asset> Assets();

}  // namespace tessera::console
