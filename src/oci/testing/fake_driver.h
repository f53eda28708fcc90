// SPDX-License-Identifier: Apache-2.0
// For tests and measurements: a driver root with the files of a real driver and nothing in them.
// Its libraries are true ELF files without symbols, so the dynamic linker loads them.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"

namespace tessera::oci {

// A shared object for this machine, of about 700 bytes. Without a SONAME where it is empty.
std::string MakeLibrary(const std::string& soname);

struct FakeGpu {
  std::string bus_id;
  std::string uuid;
  std::string model;
  int minor = 0;
};

struct FakeDriverOptions {
  std::string version = "550.54.15";
  // Without "lib" and ".so"; each gets SONAME <name>.so.1.
  std::vector<std::string> libraries = {"cuda", "nvidia-ml", "nvidia-ptxjitcompiler"};
  std::vector<std::string> binaries = {"nvidia-smi"};
  std::vector<FakeGpu> gpus;
};

inline constexpr const char* kFakeLibraryDir = "usr/lib/x86_64-linux-gnu";

Status MakeFakeDriver(const std::string& root, const FakeDriverOptions& options);
// Character devices 195:minor, 195:255 and 508:0 below <root>/dev. PERMISSION_DENIED without root.
Status MakeFakeNodes(const std::string& root, const FakeDriverOptions& options);
// Two A100 and their bus ids, minors swapped against the order of the bus.
FakeDriverOptions TwoGpus();

}  // namespace tessera::oci
