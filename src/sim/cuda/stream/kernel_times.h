// SPDX-License-Identifier: Apache-2.0
// Durations of a kernel that $SIMGPU_KERNEL_NS sets:
// "train=2000000,load=1000..3000,*=500|500|9000".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/base/random.h"

namespace tessera::cuda {

// The durations are one value, a range ("low..high"), or a list ("a|b|c"). Each launch gets one of
// the durations at random; a value that is listed twice is twice as likely. Every run of a program
// gets the same sequence.
class KernelTimes {
 public:
  KernelTimes() = default;
  // The durations in the first item of `setting` with the name of the kernel, or with "*". Empty:
  // no such item, or its durations are invalid.
  static KernelTimes Find(std::string_view setting, std::string_view kernel);
  // The first item of `setting` that is invalid; empty: all are valid.
  static std::string_view FirstInvalid(std::string_view setting);

  bool empty() const { return ns_.empty(); }
  // Nanoseconds of the next launch. REQUIRES: not empty.
  uint64_t Next();

 private:
  static KernelTimes Parse(std::string_view value);

  std::vector<uint64_t> ns_;
  bool is_range_ = false;
  Random random_{0};
};

}  // namespace tessera::cuda
