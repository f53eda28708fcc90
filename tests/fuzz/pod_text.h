// SPDX-License-Identifier: Apache-2.0
// A pod as lines of text, so that a mutation changes a number or a name and not the framing:
//
//   container main            or: init warm, sidecar proxy
//   limit nvidia.com/gpu 2
//   request nvidia.com/gpu 2
//   annotation tessera.dev/policy spread
//
// Other lines are ignored.
#pragma once

#include <string_view>

#include "src/device/dialects.h"

namespace tessera::fuzz {

device::PodSpec ParsePodText(std::string_view text);

}  // namespace tessera::fuzz
