// SPDX-License-Identifier: Apache-2.0
// Other systems that offer GPUs to pods, recognized by the images of their DaemonSets.
// Threads: pure functions. Included only in src/cli.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/formats/json.h"

namespace tessera::cli {

// "gpushare", "HAMi", …; "" if the DaemonSet is none of them.
std::string_view OtherPluginOf(const Json& daemon_set);
// Whether it is one that NVIDIA's operator runs, on the nodes with its label alone.
bool IsOfClusterPolicy(const Json& daemon_set);

// Whether a resource is one of these systems' own, which Tessera does not offer.
bool IsForeignGpuResource(std::string_view resource);

// The value of a flag in the commands and arguments of a DaemonSet: "MiB" of "--memory-unit=MiB" or
// of "--memory-unit MiB"; "" if it has none.
std::string FlagOf(const Json& daemon_set, std::string_view flag);

}  // namespace tessera::cli
