// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/smoke_test.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

SmokeVerdict Failed(std::string problem) {
  return {SmokeVerdict::State::kFailed, std::move(problem)};
}

SmokeVerdict Waiting(std::string problem) {
  return {SmokeVerdict::State::kWaiting, std::move(problem)};
}

// In ascending order.
std::vector<int> HealthyMinors(const device::NodeInventory& inventory) {
  std::vector<int> minors;
  for (const device::Gpu& gpu : inventory.gpus) {
    if (gpu.health.ok() && gpu.minor) minors.push_back(*gpu.minor);
  }
  std::ranges::sort(minors);
  return minors;
}

// "" if the node is usable.
std::string OpenNode(const std::string& path, bool simulated) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return fmt::format(
        "{} is missing ({}): run nvidia-modprobe, or let tessera-agent make it "
        "(--create-device-nodes)",
        path, std::strerror(errno));
  }
  if (simulated) return {};
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (fd.valid()) return {};
  return fmt::format("{} cannot be opened ({}): see the kernel's log for the GPU's error", path,
                     std::strerror(errno));
}

}  // namespace

std::vector<std::string> OpenDeviceNodes(const std::string& dev_root,
                                         const std::vector<int>& minors, bool simulated) {
  const std::string dev = JoinPath(dev_root, "dev");
  std::vector<std::string> names = {"nvidiactl", "nvidia-uvm"};
  for (const int minor : minors) names.push_back(fmt::format("nvidia{}", minor));
  std::vector<std::string> problems;
  for (const std::string& name : names) {
    std::string problem = OpenNode(JoinPath(dev, name), simulated);
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
  return problems;
}

SmokeVerdict JudgeSmokeTest(const SmokeFacts& facts) {
  if (facts.inventory == nullptr) return Waiting("the driver has not answered yet");
  const device::NodeInventory& inventory = *facts.inventory;
  if (!facts.driver_problem.empty()) return Failed(facts.driver_problem);
  if (!inventory.problem.empty()) return Failed(inventory.problem);
  if (inventory.healthy_count() == 0) return Failed("no GPU of the node is healthy");
  if (!facts.device_problems)
    return Waiting("the agent is still opening the device nodes: a GPU may hang");
  if (!facts.device_problems->empty()) {
    return Failed(fmt::format("{}", fmt::join(*facts.device_problems, "; ")));
  }
  if (facts.expects_kubelet && !facts.registered) {
    return Waiting(
        "the kubelet has not accepted the device plugins: check that the kubelet runs and that its "
        "device-plugins directory is mounted into the agent");
  }
  if (!facts.expects_engine) return {SmokeVerdict::State::kPassed, ""};
  if (!facts.engine_problem)
    return Waiting("the container engine's configuration cannot be checked: see the agent's log");
  if (!facts.engine_problem->empty()) return Failed(*facts.engine_problem);
  return {SmokeVerdict::State::kPassed, ""};
}

SmokeTest::SmokeTest(TaskRunner* runner, bool expects_kubelet, bool expects_engine,
                     OpenDevices open, OnVerdict on_verdict)
    : runner_(runner), open_(std::move(open)), on_verdict_(std::move(on_verdict)) {
  facts_.expects_kubelet = expects_kubelet;
  facts_.expects_engine = expects_engine;
}

void SmokeTest::SetInventory(std::shared_ptr<const device::NodeInventory> inventory) {
  facts_.inventory = std::move(inventory);
  std::vector<int> minors = HealthyMinors(*facts_.inventory);
  if (minors != minors_) {
    // The nodes of the remaining GPUs have been opened before.
    const bool result_holds = facts_.device_problems && facts_.device_problems->empty() &&
                              !minors.empty() && std::ranges::includes(minors_, minors);
    minors_ = std::move(minors);
    if (!result_holds) ExamineAnew();
  }
  Judge();
}

void SmokeTest::ExamineAnew() {
  facts_.device_problems.reset();
  ++examination_;
  if (!minors_.empty()) Examine();
}

void SmokeTest::SetDriverProblem(std::string problem) {
  facts_.driver_problem = std::move(problem);
  Judge();
}

void SmokeTest::SetRegistered(bool registered) {
  facts_.registered = registered;
  Judge();
}

void SmokeTest::SetEngineProblem(std::string problem) {
  facts_.engine_problem = std::move(problem);
  Judge();
}

void SmokeTest::Examine() {
  open_(minors_, [this, examination = examination_, weak = weak_.Get()](Problems problems) {
    if (weak) OnExamined(examination, std::move(problems));
  });
}

void SmokeTest::OnExamined(uint64_t examination, Problems problems) {
  if (examination != examination_) return;
  const bool failed = !problems.empty();
  facts_.device_problems = std::move(problems);
  Judge();
  if (!failed) return;
  runner_->PostDelayed(kDeviceRetry, [this, examination, weak = weak_.Get()] {
    if (weak && examination == examination_) Examine();
  });
}

void SmokeTest::Judge() {
  SmokeVerdict verdict = JudgeSmokeTest(facts_);
  if (verdict.state != SmokeVerdict::State::kWaiting) {
    waiting_since_.reset();
  } else if (!waiting_since_) {
    waiting_since_ = runner_->clock().Now();
    runner_->PostDelayed(kGrace, [this, weak = weak_.Get()] {
      if (weak) Judge();
    });
  } else if (runner_->clock().Now() - *waiting_since_ >= kGrace) {
    verdict.state = SmokeVerdict::State::kFailed;
  }
  if (verdict == verdict_) return;
  verdict_ = std::move(verdict);
  on_verdict_(verdict_);
}

}  // namespace tessera::agent
