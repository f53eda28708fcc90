// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The output and the exit code of a call.
struct Outcome {
  int code;
  std::string out, error;
};

class CliTest : public ::testing::Test {
 protected:
  Outcome Run(std::vector<std::string> args) {
    args.insert(args.begin(), {"simgpu", "--root", node_.driver_root()});
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = RunSimgpu(int(argv.size()), argv.data());
    fflush(nullptr);
    return {code, ::testing::internal::GetCapturedStdout(),
            ::testing::internal::GetCapturedStderr()};
  }
  std::vector<std::string> CreateArgs() const {
    return {"create", "--profile", "t4", "--gpus", "2", "--library-dir", node_.library("")};
  }

  testing::SimNode node_{{.profile = "t4", .gpus = 3}};
};

TEST_F(CliTest, CreateReplacesANodeOnlyByForce) {
  const Outcome refused = Run(CreateArgs());
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.error, HasSubstr("already has 3 x t4"));
  EXPECT_THAT(refused.error, HasSubstr("--force"));
  EXPECT_THAT(Run({"show"}).out, HasSubstr("3 x t4"));
  auto args = CreateArgs();
  args.push_back("--force");
  EXPECT_EQ(Run(args).code, 0);
  EXPECT_THAT(Run({"show"}).out, HasSubstr("2 x t4"));
  // The agent creates device nodes of the listed GPUs.
  EXPECT_EQ(ListDir(node_.driver_root() + "/proc/driver/nvidia/gpus")->size(), 2u);
  EXPECT_EQ(ListDir(node_.driver_root() + "/sys/bus/pci/devices")->size(), 2u);
}

TEST_F(CliTest, AnUnknownFaultIsRefusedWithTheKnownNames) {
  const Outcome refused = Run({"inject", "lostt", "--gpu", "0"});
  EXPECT_EQ(refused.code, 64);
  EXPECT_THAT(refused.error, HasSubstr("unknown command \"inject lostt\": use one of xid, lost, "));
}

TEST_F(CliTest, EccWithoutACountIsRefused) {
  const Outcome refused = Run({"inject", "ecc", "--gpu", "1"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.error, HasSubstr("--uncorrected"));
  EXPECT_EQ(Run({"inject", "ecc", "--gpu", "1", "--corrected", "2"}).code, 0);
}

TEST_F(CliTest, ShowReportsTheHealthOfAGpu) {
  EXPECT_THAT(Run({"show"}).out, HasSubstr("  healthy\n"));
  Run({"inject", "nvml-hang", "nvmlDeviceGetName", "--gpu", "0"});
  Run({"inject", "nvml-fail", "nvmlDeviceGetName", "--gpu", "1"});
  Run({"inject", "xid", "--gpu", "2", "--code", "48"});
  const std::string unhealthy = Run({"show"}).out;
  for (const char* word : {"  HANGS\n", "  FAILS\n", "  NEEDS A RESET\n"}) {
    EXPECT_THAT(unhealthy, HasSubstr(word));
  }
  EXPECT_THAT(unhealthy, Not(HasSubstr("  healthy\n")));
  Run({"inject", "clear"});
  EXPECT_THAT(Run({"show"}).out, Not(HasSubstr("HANGS")));
}

TEST_F(CliTest, AValueThatIsNoNumberIsRefused) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"inject", "lost", "--gpu", "abc"},
        {"inject", "power", "--gpu", "0", "--value", "abc"},
        {"inject", "nvml-fail", "nvmlDeviceGetName", "--times", "abc"}}) {
    const Outcome refused = Run(args);
    EXPECT_EQ(refused.code, 64);
    EXPECT_THAT(refused.error, HasSubstr("invalid value \"abc\""));
    EXPECT_THAT(refused.error, Not(HasSubstr("Could not convert")));
  }
}

TEST_F(CliTest, ListsRefusedCallsAndKernelsThatComputedNothing) {
  EXPECT_THAT(Run({"unimplemented"}).out, HasSubstr("No calls of unimplemented functions"));
  State& state = node_.state();
  state.CountUnimplemented("cuTexRefCreate");
  *state.KernelCounter("train") += 3;
  *state.KernelCounter("infer") += 7;
  EXPECT_EQ(Run({"unimplemented"}).out,
            "         1  cuTexRefCreate\n"
            "         7  kernel infer (took time, computed nothing)\n"
            "         3  kernel train (took time, computed nothing)\n");
}

TEST_F(CliTest, PrintsItsVersion) {
  const Outcome version = Run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_NE(version.out, "");
}

}  // namespace
}  // namespace tessera::sim
