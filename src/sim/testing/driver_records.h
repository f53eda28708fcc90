// SPDX-License-Identifier: Apache-2.0
// For tests: the recorded exports and answers of NVIDIA's driver libraries. The records are not
// part of the tree. They are in $TESSERA_ORACLES, by default in ../shared/oracles beside it.
//
// The functions return an error if a file is missing. A test then skips with its message.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::sim::testing {

// A driver with recorded answers, and its CUDA version.
struct RecordedDriver {
  const char* version;
  int cuda_version;
};
inline constexpr RecordedDriver kRecordedDrivers[] = {
    {"470.256.02", 11040}, {"535.309.01", 12020}, {"550.163.01", 12040}};
void PrintTo(const RecordedDriver& driver, std::ostream* out);  // for names of tests

// The drivers with a file `libcuda-<version>.symbols`.
Result<std::vector<std::string>> DriversWithRecordedExports();
// The sorted exports of `library`, such as libcuda, of a driver.
Result<std::vector<std::string>> RecordedExports(std::string_view library, std::string_view driver);

// The answer of cuGetProcAddress to programs built for CUDA `first_version` to `last_version`.
struct RecordedAddress {
  std::string name;
  unsigned flags;
  int first_version, last_version;
  int result;
  int status;          // -1: the driver has no version of the call with a status
  std::string symbol;  // empty: none
};
Result<std::vector<RecordedAddress>> RecordedAddresses(std::string_view driver);

// A result code with its name and text. `name` is empty for NVML, whose codes have no names.
struct RecordedError {
  int code;
  std::string name, text;
};
Result<std::vector<RecordedError>> RecordedCudaErrors(std::string_view driver);
Result<std::vector<RecordedError>> RecordedNvmlErrors(std::string_view driver);

}  // namespace tessera::sim::testing
