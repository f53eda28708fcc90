// SPDX-License-Identifier: Apache-2.0
// Compute limits in programs that are statically linked, or that the dynamic linker starts as its
// argument.
#include <elf.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/base/subprocess.h"
#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

#ifdef LIMITER_STATIC_CLIENT

using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;

constexpr char kLibraryPath[] = "LD_LIBRARY_PATH=/run/tessera/lib";

struct Outcome {
  int exit_code = -1;
  int milliseconds = 0;
  int longest_launch = 0;  // in milliseconds
  int threads = 0;
};

Outcome RunClient(std::vector<std::string> argv, const std::vector<std::string>& arguments) {
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const auto result = RunProgram(argv, std::chrono::seconds(60), {kLibraryPath});
  Outcome outcome;
  if (!result.ok()) return outcome;
  outcome.exit_code = result->exit_code;
  (void)std::sscanf(result->out.c_str(), "%d %d %d", &outcome.milliseconds, &outcome.longest_launch,
                    &outcome.threads);
  return outcome;
}

int64_t ChargedMilliseconds(LimitedNode* node) {
  return node->compute(0).charge.charged.load() / 1'000'000;
}

// The path of the dynamic linker that this test itself names.
std::string DynamicLinker() {
  const auto* headers = reinterpret_cast<const Elf64_Phdr*>(::getauxval(AT_PHDR));
  uintptr_t base = 0;
  for (size_t i = 0; i < ::getauxval(AT_PHNUM); ++i) {
    if (headers[i].p_type == PT_PHDR) base = uintptr_t(headers) - headers[i].p_vaddr;
    if (headers[i].p_type == PT_INTERP)
      return reinterpret_cast<const char*>(base + headers[i].p_vaddr);
  }
  return "";
}

class StaticProgramTest : public LimiterTest {
 protected:
  void SetUp() override {
    LimiterTest::SetUp();
    setenv("SIMGPU_KERNEL_NS", "work=1000000", 1);
  }
  void TearDown() override { unsetenv("SIMGPU_KERNEL_NS"); }
};

TEST_F(StaticProgramTest, AStaticProgramGetsItsShareOfTheTime) {
  for (const char* client : {LIMITER_STATIC_CLIENT, LIMITER_STATIC_PIE_CLIENT}) {
    for (const bool waits_for_each : {false, true}) {
      SCOPED_TRACE(client + std::string(waits_for_each ? ", waits for each launch" : ""));
      LimitedNode node({100 * kMiB});
      node.SetCompute(0, 0.25);
      std::vector<std::string> arguments = {"launch", "100"};
      if (waits_for_each) arguments.push_back("each");
      const Outcome outcome = RunClient({client}, arguments);
      EXPECT_EQ(outcome.exit_code, 0);
      // 100 ms of work, of which the first 18 ms may use the saved allowance.
      EXPECT_GE(outcome.milliseconds, 310);
      EXPECT_LE(outcome.milliseconds, 5000) << "a busy machine may add to 320 ms";
      EXPECT_GE(ChargedMilliseconds(&node), 90);
      EXPECT_LE(ChargedMilliseconds(&node), 200);
      EXPECT_EQ(outcome.threads, 1);
    }
  }
}

// A static program has no helper thread, so the thread that launches charges the launch while it
// runs.
TEST_F(StaticProgramTest, ALaunchOfAKilledStaticProgramIsCharged) {
  setenv("SIMGPU_KERNEL_NS", "work=5000000000", 1);
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  const pid_t pid = ::fork();
  if (pid == 0) {
    setenv("LD_LIBRARY_PATH", "/run/tessera/lib", 1);
    ::execl(LIMITER_STATIC_CLIENT, LIMITER_STATIC_CLIENT, "launch", "1", nullptr);
    ::_exit(127);
  }
  int status = 0;
  while (node.compute(0).charge.charged == 0 && ::waitpid(pid, &status, WNOHANG) == 0)
    ::usleep(1000);
  // A busy machine may run the program late.
  for (int i = 0; i < 4000 && ChargedMilliseconds(&node) < 150; ++i) ::usleep(1000);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, 0);
  EXPECT_GE(ChargedMilliseconds(&node), 150);
}

// The launch may depend on what its thread does next, so the wait for its end has a time limit.
TEST_F(StaticProgramTest, TheFirstLaunchOfAFunctionWaitsForAtMostTwoSeconds) {
  setenv("SIMGPU_KERNEL_NS", "work=4000000000", 1);
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.9);
  const Outcome outcome = RunClient({LIMITER_STATIC_CLIENT}, {"launch", "1"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_GE(outcome.longest_launch, 1999);
  EXPECT_LE(outcome.longest_launch, 3900);
  EXPECT_GE(outcome.milliseconds, 3990);
  EXPECT_GE(ChargedMilliseconds(&node), 3900);
}

TEST_F(StaticProgramTest, ADynamicProgramHasAHelperThread) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  for (const std::vector<std::string>& argv : {std::vector<std::string>{LIMITER_DYNAMIC_CLIENT},
                                               {DynamicLinker(), LIMITER_DYNAMIC_CLIENT}}) {
    const Outcome outcome = RunClient(argv, {"launch", "20"});
    EXPECT_EQ(outcome.exit_code, 0) << argv[0];
    EXPECT_EQ(outcome.threads, 2) << argv[0];
  }
}

#else
TEST(StaticProgramTest, AStaticProgramGetsItsShareOfTheTime) {
  GTEST_SKIP() << "sanitizers do not link statically";
}
#endif

}  // namespace
}  // namespace tessera::limiter
