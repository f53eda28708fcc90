// SPDX-License-Identifier: Apache-2.0
// The kernel refuses every mmap of this process while an object of this class exists.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tessera::limiter {

class ExhaustedMemory {
 public:
  ExhaustedMemory() {
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit none{0, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &none), 0);
  }
  ~ExhaustedMemory() { EXPECT_EQ(::setrlimit(RLIMIT_AS, &before_), 0); }
  ExhaustedMemory(const ExhaustedMemory&) = delete;
  ExhaustedMemory& operator=(const ExhaustedMemory&) = delete;

 private:
  rlimit before_{};
};

}  // namespace tessera::limiter
