// SPDX-License-Identifier: Apache-2.0
// For tests and benchmarks: a driver root with the files of a real driver, but without content. Its
// libraries are valid ELF files without symbols, so the dynamic linker loads them.
#pragma once

#include <string>
#include <vector>

#include "src/base/machine.h"
#include "src/base/status.h"

namespace tessera::oci {

// A shared object for this machine, of about 700 bytes. It has no SONAME if `soname` is empty.
std::string MakeLibrary(const std::string& soname);

struct FakeGpu {
  std::string bus_id;
  std::string uuid;
  std::string model;
  int minor = 0;
};

struct FakeDriverOptions {
  std::string version = "550.54.15";
  // Names without "lib" and ".so"; each gets SONAME <name>.so.1.
  std::vector<std::string> libraries = {"cuda", "nvidia-ml", "nvidia-ptxjitcompiler"};
  std::vector<std::string> binaries = {"nvidia-smi"};
  std::vector<FakeGpu> gpus;
};

inline constexpr const char* kFakeLibraryDir = "usr/lib/" TESSERA_MULTIARCH;

Status MakeFakeDriver(const std::string& root, const FakeDriverOptions& options);
// Creates the character devices 195:minor, 195:255 and 508:0 below <root>/dev. PERMISSION_DENIED
// without root.
Status MakeFakeNodes(const std::string& root, const FakeDriverOptions& options);
// Two A100, with minors in the reverse order of their bus ids.
FakeDriverOptions TwoGpus();

}  // namespace tessera::oci
