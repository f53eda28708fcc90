// SPDX-License-Identifier: Apache-2.0
// Measures what dividing compute costs the agent: the real ComputeControl over the files of 100
// limited containers of two processes each, on 8 GPUs. The program acts as the limiters of the
// containers: it writes the GPU time that they use of their shares. At the same time a thread only
// sleeps and wakes as often as the control. The cost of this thread is the machine's cost of a
// wake-up, without any work of the control.
//   arbiter_bench [seconds for each row [containers at work on each GPU]]
// Instructions of a tick of one GPU, which no other work on the machine changes:
//   valgrind --tool=callgrind --toggle-collect='*ComputeControl::TickGpu(*' arbiter_bench 3 13
//   callgrind_annotate --tree=caller callgrind.out.* | grep TickGpu
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/agent/limits/compute_control.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera {
namespace {

using agent::ComputeControl;

constexpr int kGpus = 8, kContainers = 100, kProcesses = 2;
constexpr int64_t kMillisecond = 1'000'000;
constexpr double kShare = 0.9 * kGpus / kContainers;

int64_t NowNs() { return SystemClock().Now().time_since_epoch().count(); }

std::string UuidOf(int gpu) { return fmt::format("GPU-00000000-0000-0000-0000-{:012}", gpu); }

// One container with a share of one GPU. The program acts as its processes.
class Container {
 public:
  Container(const std::string& dir, int index) {
    const std::string name = fmt::format("{}/{}", dir, index), uuid = UuidOf(index % kGpus);
    auto limits = std::make_shared<limiter::LimitsFile>();
    auto usage = std::make_shared<const Fd>(
        ::open((name + "-usage").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (limits->Open((name + "-limits").c_str()) != 0 ||
        limits->SetCompute(uuid.c_str(), kShare, kShare) != 0 ||
        ::ftruncate(usage->get(), sizeof(limiter::Usage)) != 0) {
      fmt::print(stderr, "arbiter_bench: cannot make the files of a container in {}\n", dir);
      std::exit(1);
    }
    void* memory = ::mmap(nullptr, sizeof(limiter::Usage), PROT_READ | PROT_WRITE, MAP_SHARED,
                          usage->get(), 0);
    if (memory == MAP_FAILED) std::exit(1);
    usage_ = static_cast<limiter::Usage*>(memory);
    line_ = &limits->limits().compute[0];
    member_ = {.pod_uid = Uid(name),
               .container = "main",
               .uuid = uuid,
               .share = {.request = kShare, .limit = kShare},
               .limits = std::move(limits),
               .usage = std::move(usage)};
  }
  ~Container() { ::munmap(usage_, sizeof(limiter::Usage)); }
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  const ComputeControl::Member& member() const { return member_; }
  // Records that the processes have used their share of the elapsed time, and wait for more.
  void Work(int64_t now, int64_t elapsed) {
    limiter::ComputeUsage& usage = usage_->compute[0];
    const auto used = static_cast<int64_t>(kShare * static_cast<double>(elapsed));
    usage.charge.slots.store(kProcesses, limiter::kRelaxed);
    usage.charge.charged.fetch_add(used, limiter::kRelaxed);
    for (int i = 0; i < kProcesses; ++i) {
      limiter::ComputeSlot& slot = usage.slots[i];
      slot.metered.fetch_add(used / kProcesses, limiter::kRelaxed);
      slot.in_flight.store(kMillisecond / 2, limiter::kRelaxed);
      slot.last_launch.store(now, limiter::kRelaxed);
      slot.last_wait.store(now, limiter::kRelaxed);
      slot.last_written.store(now, limiter::kRelaxed);
    }
  }
  // The allowance that the control has written, as a limiter reads it.
  int64_t pool() const { return line_->pool.load(limiter::kRelaxed); }

 private:
  ComputeControl::Member member_;
  limiter::Usage* usage_ = nullptr;
  const limiter::ComputeLimit* line_ = nullptr;
};

// The processor time of a thread of this program, and how often the thread gave up its processor.
struct ThreadCost {
  double seconds = 0;
  long sleeps = 0;
};

ThreadCost CostOf(const std::string& name) {
  for (const std::string& thread : ListDir("/proc/self/task").value_or({})) {
    const std::string dir = "/proc/self/task/" + thread;
    if (Trim(ReadFile(dir + "/comm").value_or("")) != name) continue;
    const std::string times = ReadFile(dir + "/schedstat").value_or("");
    const std::string status = ReadFile(dir + "/status").value_or("");
    const size_t at = status.find("\nvoluntary_ctxt_switches:");
    return {std::strtod(times.c_str(), nullptr) / 1e9,
            at == std::string::npos ? 0 : std::atol(status.c_str() + at + 25)};
  }
  fmt::print(stderr, "arbiter_bench: there is no thread {}\n", name);
  std::exit(1);
}

// The first `active` containers of each GPU work every millisecond.
void Play(std::vector<std::unique_ptr<Container>>* containers, int active, int64_t length) {
  int64_t last = NowNs();
  const int64_t end = last + length;
  int64_t sum = 0;
  while (last < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const int64_t now = NowNs();
    for (int i = 0; i < kContainers && i / kGpus < active; ++i) {
      (*containers)[size_t(i)]->Work(now, now - last);
      sum += (*containers)[size_t(i)]->pool();
    }
    last = now;
  }
  if (sum == 1) fmt::print("\n");  // keeps the compiler from dropping the reads
}

// Sleeps until `stop`, `interval` at a time.
void SleepOnly(Duration interval, const std::atomic<bool>* stop) {
  ::pthread_setname_np(::pthread_self(), "sleeper");
  while (!stop->load()) std::this_thread::sleep_for(interval);
}

void Measure(std::vector<std::unique_ptr<Container>>* containers, int active, int64_t length) {
  std::vector<ComputeControl::Member> members;
  for (const auto& container : *containers) members.push_back(container->member());
  ComputeControl control;
  control.Update(std::move(members));
  Play(containers, active, length / 4);
  std::atomic<bool> stop = false;
  std::thread sleeper(SleepOnly, std::chrono::milliseconds(2), &stop);
  Play(containers, active, length / 10);
  const ThreadCost before = CostOf("compute"), sleeper_before = CostOf("sleeper");
  const int64_t start = NowNs();
  Play(containers, active, length);
  const ThreadCost after = CostOf("compute"), sleeper_after = CostOf("sleeper");
  const double seconds = static_cast<double>(NowNs() - start) / 1e9;
  stop = true;
  sleeper.join();
  fmt::print(
      "{:2} active on each GPU: {:4.0f} wake-ups/s, {:.2f} % of a core; sleeping alone {:.2f} %\n",
      active, static_cast<double>(after.sleeps - before.sleeps) / seconds,
      100 * (after.seconds - before.seconds) / seconds,
      100 * (sleeper_after.seconds - sleeper_before.seconds) / seconds);
}

int Run(double seconds, const std::vector<int>& rows) {
  const TempDir dir;
  std::vector<std::unique_ptr<Container>> containers;
  for (int i = 0; i < kContainers; ++i) {
    containers.push_back(std::make_unique<Container>(dir.path(), i));
  }
  fmt::print("{} GPUs, {} containers of {} processes\n", kGpus, kContainers, kProcesses);
  for (const int active : rows) {
    Measure(&containers, active, static_cast<int64_t>(seconds * 1e9));
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  std::vector<int> rows = {0, 1, 2, 4, 13};
  if (argc > 2) rows = {std::atoi(argv[2])};
  return tessera::Run(argc > 1 ? std::atof(argv[1]) : 4, std::move(rows));
}
