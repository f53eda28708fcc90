// SPDX-License-Identifier: Apache-2.0
// E6: the time of launches and allocations. E7 to E9: the part of the GPU that a program gets. E11:
// when events are stamped.
#include <algorithm>
#include <deque>
#include <vector>

#include "tests/real_gpu/libraries.h"

namespace tessera::real_gpu {
namespace {

constexpr int kLaunches = 100'000, kBatch = 1000, kPairs = 20'000;
constexpr int kInFlight = 8;  // spins that an asynchronous program has in flight
constexpr int kInGraph = 4;

cuda::GraphExec GraphOf(Program& program, cuda::Stream stream, cuda::Function function,
                        unsigned blocks, int launches) {
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  CALL(cuStreamBeginCapture_v2, stream, 0);
  for (int i = 0; i < launches; ++i) program.Launch(function, blocks, stream);
  CALL(cuStreamEndCapture, stream, &graph);
  CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
  CALL(cuGraphDestroy, graph);
  return exec;
}

// The mean time of `launch` without the waits between batches, in nanoseconds.
template <typename Launch>
double LaunchNs(Launch launch) {
  double sum = 0;
  constexpr int kBatches = kLaunches / kBatch;
  for (int batch = 0; batch < kBatches; ++batch) {
    sum += NsOf(kBatch, launch);
    CALL(cuCtxSynchronize, );
  }
  return sum / kBatches;
}

// Launches spins as one kind of experiment does: sync, async, graph, cooperative or extended.
class Spinner {
 public:
  Spinner(Program& program, const std::string& kind) : program_(program), kind_(kind) {
    CALL(cuStreamCreate, &stream_, 1);
    if (kind == "graph") {
      exec_ = GraphOf(program, stream_, program.spin, program.spin_blocks, kInGraph);
    } else if (kind != "sync" && kind != "async" && kind != "cooperative" && kind != "extended") {
      Exit(1, "unknown kind of launches: " + kind);
    }
  }
  int spins() const { return kind_ == "graph" ? kInGraph : 1; }
  void Launch() {
    void* parameters[] = {&program_.rounds, &program_.out};
    const unsigned blocks = program_.spin_blocks;
    if (kind_ == "graph") {
      CALL(cuGraphLaunch, exec_, stream_);
    } else if (kind_ == "cooperative") {
      CALL(cuLaunchCooperativeKernel, program_.spin, blocks, 1, 1, 1024, 1, 1, 0, stream_,
           parameters);
    } else if (kind_ == "extended") {
      const cuda::LaunchConfig config{.grid_x = blocks,
                                      .grid_y = 1,
                                      .grid_z = 1,
                                      .block_x = 1024,
                                      .block_y = 1,
                                      .block_z = 1,
                                      .stream = stream_};
      CALL(cuLaunchKernelEx, &config, program_.spin, parameters, nullptr);
    } else {
      program_.LaunchSpin(stream_);
    }
    cuda::Event event = nullptr;
    CALL(cuEventCreate, &event, 2);
    CALL(cuEventRecord, event, stream_);
    in_flight_.push_back(event);
  }
  // Waits until at most `most` launches are in flight.
  void Wait(size_t most) {
    while (in_flight_.size() > most) {
      CALL(cuEventSynchronize, in_flight_.front());
      CALL(cuEventDestroy_v2, in_flight_.front());
      in_flight_.pop_front();
    }
  }
  size_t most_in_flight() const { return kind_ == "sync" ? 0 : kInFlight; }

 private:
  Program& program_;
  const std::string kind_;
  cuda::Stream stream_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
  std::deque<cuda::Event> in_flight_;
};

}  // namespace

void RunLaunches() {
  Program program;
  cuda::Stream stream = nullptr;
  CALL(cuStreamCreate, &stream, 1);
  program.Launch(program.empty, 1, stream);
  Row("E6", "a launch of an empty kernel",
      fmt::format("{:.0f} ns", LaunchNs([&] { program.Launch(program.empty, 1, stream); })));
  const cuda::GraphExec exec = GraphOf(program, stream, program.empty, 1, 10);
  CALL(cuGraphLaunch, exec, stream);
  Row("E6", "a launch of a graph of 10 empty kernels",
      fmt::format("{:.0f} ns", LaunchNs([&] { CALL(cuGraphLaunch, exec, stream); })));
  for (const uint64_t bytes : {uint64_t(4096), 4 * kMiB}) {
    const double ns = NsOf(kPairs, [&] {
      cuda::DevicePtr pointer = 0;
      CALL(cuMemAlloc_v2, &pointer, bytes);
      CALL(cuMemFree_v2, pointer);
    });
    Row("E6", fmt::format("cuMemAlloc and cuMemFree of {} KiB", bytes / 1024),
        fmt::format("{:.0f} ns", ns));
  }
  size_t free = 0, total = 0;
  Row("E6", "cuMemGetInfo",
      fmt::format("{:.0f} ns", NsOf(kPairs, [&] { CALL(cuMemGetInfo_v2, &free, &total); })));
}

// The stream is idle before each pair. If the driver stamped the first event before the program has
// its turn, the time between the two events would include the turn of the other program.
void RunStamps() {
  constexpr int kRounds = 501;
  Program program;
  cuda::Event start = nullptr, end = nullptr;
  CALL(cuEventCreate, &start, 0);
  CALL(cuEventCreate, &end, 0);
  std::vector<float> times(kRounds);
  for (float& milliseconds : times) {
    CALL(cuEventRecord, start, nullptr);
    program.Launch(program.empty, 1);
    CALL(cuEventRecord, end, nullptr);
    CALL(cuEventSynchronize, end);
    CALL(cuEventElapsedTime, &milliseconds, start, end);
  }
  std::ranges::sort(times);
  Row("E11", "between the events around an empty kernel, beside a busy program",
      fmt::format("{:.0f} µs (median)", times[kRounds / 2] * 1000));
}

// The first line has the length of one spin. It also tells run.py that the program is ready.
void RunSpin(const std::string& kind, double seconds) {
  Program program;
  Spinner spinner(program, kind);
  spinner.Launch();
  spinner.Wait(0);
  fmt::print("spin_ns\t{:.0f}\n", program.MeasureSpin());
  std::fflush(stdout);
  const double start = NowNs();
  double window = start;
  int spins = 0;
  while (NowNs() < start + seconds * 1000 * kMs) {
    spinner.Launch();
    spinner.Wait(spinner.most_in_flight());
    spins += spinner.spins();
    if (const double now = NowNs(); now >= window + 1000 * kMs) {
      fmt::print("window\t{:.6f}\n", double(spins) * 1000 * kMs / (now - window));
      std::fflush(stdout);
      window = now;
      spins = 0;
    }
  }
  spinner.Wait(0);
}

}  // namespace tessera::real_gpu
