// SPDX-License-Identifier: Apache-2.0
// Other systems that offer GPUs to pods, recognized by the images of their DaemonSets.
// Threads: pure functions. Included only in src/cli.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/formats/json.h"

namespace tessera::cli {

// The system of the DaemonSet: "gpushare", "HAMi", …; "" for any other DaemonSet.
std::string_view OtherPluginOf(const Json& daemon_set);
// Whether NVIDIA's operator runs the DaemonSet; then it runs only on nodes with the operator's
// label.
bool IsRunByNvidiaOperator(const Json& daemon_set);

// Whether a resource belongs to another system and Tessera does not offer it.
bool IsForeignGpuResource(std::string_view resource);

// The value of a flag in the commands and arguments of a DaemonSet: "MiB" of "--memory-unit=MiB" or
// of "--memory-unit MiB"; "" if the flag is not set.
std::string FlagOf(const Json& daemon_set, std::string_view flag);

}  // namespace tessera::cli
