// SPDX-License-Identifier: Apache-2.0
// What parts of the driver a container asks for (NVIDIA_DRIVER_CAPABILITIES), and which files
// belong to which part. Pure tables; any thread.
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
// "all": each of them, as far as the driver has it. A list that names each of them is not "all".
inline constexpr Capabilities kAsFarAsThereIs = 64;
inline constexpr Capabilities kAllCapabilities = 127;

// "compute,utility", "all"; empty gives the default. compat32 is known, and gives nothing: 32-bit
// libraries are not placed. INVALID_ARGUMENT names a word that is not known.
Result<Capabilities> ParseCapabilities(std::string_view text);
// Those of them without which a container must not start: of "all" the default ones.
Capabilities MustWork(Capabilities capabilities);
std::string CapabilitiesText(Capabilities capabilities);

// Which containers get a library of the driver: by its name without what follows ".so". One that is
// not known here is for all: newer drivers bring new ones.
Capabilities LibraryNeededBy(std::string_view stem);
// Is a file a library of the driver `version`? Most end in that version; some have a version of
// their own.
bool IsDriverLibrary(std::string_view file_name, std::string_view version);

struct DriverFile {
  std::string_view name;
  Capabilities needed_by;
};
std::span<const DriverFile> DriverBinaries();
// Files by which loaders of Vulkan, EGL and GBM find the driver; below usr/share or etc.
std::span<const DriverFile> DriverDataFiles();

// Without it a capability does not work: a library's name without ".so", or a data file.
struct DriverPart {
  Capabilities capability;
  std::string_view name;
};
std::span<const DriverPart> NeededParts();

// Device nodes beside /dev/nvidiaN.
struct ControlNode {
  std::string_view name;  // below /dev
  Capabilities needed_by;
  Capabilities required_by;  // where one of these must work, the node must be there
  std::string_view advice;   // how to get it where it is missing
};
std::span<const ControlNode> ControlNodes();

}  // namespace tessera::oci
