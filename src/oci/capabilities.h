// SPDX-License-Identifier: Apache-2.0
// What parts of the driver a container asks for (NVIDIA_DRIVER_CAPABILITIES), and which files belong
// to which part. Pure tables; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::oci {

// A set of bits.
using Capabilities = uint32_t;
inline constexpr Capabilities kCompute = 1;
inline constexpr Capabilities kUtility = 2;
inline constexpr Capabilities kVideo = 4;
inline constexpr Capabilities kGraphics = 8;
inline constexpr Capabilities kDisplay = 16;
inline constexpr Capabilities kNgx = 32;
inline constexpr Capabilities kDefaultCapabilities = kCompute | kUtility;
inline constexpr Capabilities kAllCapabilities = 63;

// "compute,utility", "all"; empty gives the default. compat32 is known, and gives nothing: 32-bit
// libraries are not placed. INVALID_ARGUMENT names a word that is not known.
Result<Capabilities> ParseCapabilities(std::string_view text);
std::string CapabilitiesText(Capabilities capabilities);

struct DriverFile {
  std::string_view name;  // "libcuda": lib files are <name>.so.<driver version>
  Capabilities needed_by;
};
std::span<const DriverFile> DriverLibraries();
std::span<const DriverFile> DriverBinaries();

// Device nodes beside /dev/nvidiaN.
struct ControlNode {
  std::string_view name;  // below /dev
  Capabilities needed_by;
  bool required;
  std::string_view advice;  // how to get it where it is missing
};
std::span<const ControlNode> ControlNodes();

}  // namespace tessera::oci
