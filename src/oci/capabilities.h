// SPDX-License-Identifier: Apache-2.0
// The driver capabilities that a container requests (NVIDIA_DRIVER_CAPABILITIES), and the driver
// files of each capability. Pure tables; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace tessera::oci {

// A bit set.
using Capabilities = uint32_t;
inline constexpr Capabilities kCompute = 1;
inline constexpr Capabilities kUtility = 2;
inline constexpr Capabilities kVideo = 4;
inline constexpr Capabilities kGraphics = 8;
inline constexpr Capabilities kDisplay = 16;
inline constexpr Capabilities kNgx = 32;
inline constexpr Capabilities kDefaultCapabilities = kCompute | kUtility;
// "all": every capability that the driver supports. A list of all capability names does not set
// this bit.
inline constexpr Capabilities kRequestedAll = 64;
inline constexpr Capabilities kAllCapabilities = 127;

// Parses "compute,utility", "all"; empty text gives the default. compat32 is valid but has no
// effect, because 32-bit libraries are not supported. INVALID_ARGUMENT names an unknown word.
Result<Capabilities> ParseCapabilities(std::string_view text);
// Returns the requested capabilities without which the container must not start. A request for
// "all" requires only the default capabilities.
Capabilities RequiredCapabilities(Capabilities capabilities);
std::string CapabilitiesText(Capabilities capabilities);

// The capabilities that need a library of the driver; `stem` is the library's name before ".so". An
// unknown library counts as needed by all, because newer drivers have new libraries.
Capabilities CapabilitiesNeedingLibrary(std::string_view stem);
// Whether a file is a library of the driver `version`. Most names end in that version; some
// libraries have versions of their own.
bool IsDriverLibrary(std::string_view file_name, std::string_view version);

struct DriverFile {
  std::string_view name;
  Capabilities needed_by;
};
std::span<const DriverFile> DriverBinaries();
// Files by which loaders of Vulkan, EGL and GBM find the driver; relative to usr/share or etc.
std::span<const DriverFile> DriverDataFiles();

// A file that a capability requires: a library's name without ".so", or a data file.
struct RequiredDriverFile {
  Capabilities capability;
  std::string_view name;
};
std::span<const RequiredDriverFile> RequiredDriverFiles();

// Device nodes besides /dev/nvidiaN.
struct ControlNode {
  std::string_view name;     // relative to /dev
  Capabilities used_by;      // containers that request one of these get the node
  Capabilities required_by;  // if one of these is required, the node must exist
  std::string_view advice;   // how to create a missing node
};
std::span<const ControlNode> ControlNodes();

}  // namespace tessera::oci
