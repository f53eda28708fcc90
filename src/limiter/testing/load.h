// SPDX-License-Identifier: Apache-2.0
// For tests: the work of a program on the GPU, step by step. Deterministic by seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tessera::limiter::testing {

inline constexpr double kUs = 1e3, kMs = 1e6;  // in nanoseconds

struct Load {
  struct Kernel {
    double length;        // mean, in nanoseconds
    double spread = 0;    // standard deviation of the logarithm
    int other_every = 0;  // every so many launches, one has the length `other_length`; 0: none
    double other_length = 0;
  };
  // kNew: each launch has a grid that was never used before, of 2 % to 198 % of the mean blocks.
  // kGrowing: each launch has more blocks than the launch before, from 2 % of the mean.
  enum class Grids { kFixed, kNew, kGrowing };
  std::string name;
  std::vector<Kernel> kernels;  // each launch picks one at random
  int streams = 1;
  int sync_every = 0;  // launches; 0: never waits
  double burst = 0;    // nanoseconds of GPU time before the program waits and thinks
  double think = 0;    // nanoseconds
  Grids grids = Grids::kFixed;
  double power = 0;        // a launch takes `length` * (blocks / mean blocks)^power
  bool exchanges = false;  // before a launch of another length, changes the graph that it launches
  double wake = 10 * kUs;  // from the end of the work until the program's wait returns
  double begins = 0, ends = 1e18;  // when the process starts, and when it is killed for good
  double meter_error = 1;          // factor of the times that its events report
  // If not 0: nanoseconds from the first launch of a process until it is killed. Then the next
  // process of the load starts.
  double killed_after = 0;
};

struct Step {
  enum Kind { kLaunch, kSync, kThink } kind;
  int64_t length;  // of the launch, or of the pause
  uint64_t function;
  int stream;
  uint64_t blocks[2] = {1, 1};  // of the grid, in x and y
  bool exchanged = false;       // the graph was changed, so its price is forgotten
};

class Program {
 public:
  Program(const Load& load, uint64_t seed)
      : load_(load), random_(seed), launches_by_kernel_(load.kernels.size()) {}
  Step Next();
  // Length of the longest launch so far, in nanoseconds.
  int64_t longest() const { return longest_; }

 private:
  void ChooseGrid(Step* step, double* length);

  const Load load_;
  std::mt19937_64 random_;
  std::vector<int> launches_by_kernel_;
  bool had_other_length_ = false;
  int launches_ = 0;
  int64_t longest_ = 0;
  uint64_t stream_ = 0, grids_ = 0;
  double in_burst_ = 0;
  bool thinks_ = false;
};

// Loads for tests with a single tenant.
std::vector<Load> AllLoads();
// A random load: kernels from 5 us to 20 ms, with and without pauses, streams and spread.
Load RandomLoad(std::mt19937_64* random);

}  // namespace tessera::limiter::testing
