// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/driver_report.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

// What JudgeDriver finds: "DriverIncomplete: …"; "" for nothing.
std::string Judged(const DriverFacts& facts, std::string_view nvml_problem = "") {
  NodeFindings findings{.driver_reason = "Earlier", .driver_problem = "earlier"};
  JudgeDriver(facts, nvml_problem, &findings);
  if (findings.driver_reason.empty()) return findings.driver_problem;
  return fmt::format("{}: {}", findings.driver_reason, findings.driver_problem);
}

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const DriverRoot kHost{"/", "/driver-root"};
const DriverRoot kContainer{"/run/nvidia/driver", "/driver-root/run/nvidia/driver"};

DriverCandidate Whole(const DriverRoot& root, const std::string& version = "550.1") {
  return {
      .root = root, .nvml_version = version, .cuda_version = version, .module_version = version};
}

TEST(DriverReportTest, ACompleteDriverGivesNoFinding) {
  EXPECT_EQ(Judged({{Whole(kHost), {.root = kContainer, .module_version = "550.1"}}, 8}), "");
  EXPECT_EQ(Judged({{{.root = kHost, .module_version = "550.1"}, Whole(kContainer)}, 8}), "");
}

TEST(DriverReportTest, TheErrorNamesWhereToInstallADriver) {
  const DriverFacts facts{{{.root = kHost}, {.root = kContainer}}, 2};
  const std::string text = Judged(facts, "no library");
  EXPECT_TRUE(text.starts_with("DriverNotReady: there is no NVIDIA driver for the 2 GPUs")) << text;
  EXPECT_TRUE(Contains(text, "libnvidia-ml.so.1 is neither in / nor in /run/nvidia/driver"));
  EXPECT_TRUE(Contains(text, "run a driver container"));
  EXPECT_EQ(Judged({facts.candidates, 0}, "no library"), "") << "a node without GPUs";
}

TEST(DriverReportTest, ARemovedDriverIsNotReadyThoughNvmlStillAnswers) {
  const DriverFacts facts{{{.root = kHost}, {.root = kContainer}}, 0};
  EXPECT_TRUE(Judged(facts).starts_with("DriverNotReady: the NVIDIA driver was removed"))
      << Judged(facts);
  EXPECT_EQ(Judged({facts.candidates, 0, true}), "") << "closed by an administrator";
}

TEST(DriverReportTest, AnIncompleteDriverIsReportedWithTheMissingPart) {
  std::string text = Judged({{{.root = kHost, .module_version = "550.1"}}, 1}, "no library");
  EXPECT_TRUE(text.starts_with("DriverIncomplete: the kernel module nvidia 550.1 is loaded"));

  text = Judged({{{.root = kHost, .nvml_version = "550.1", .cuda_version = "550.1"}}, 1},
                "not loaded");
  EXPECT_TRUE(Contains(text, "the kernel module is not loaded: run \"modprobe nvidia\"")) << text;
  text = Judged(
      {{{.root = kHost}, {.root = kContainer, .nvml_version = "550.1", .cuda_version = "550.1"}},
       1},
      "not loaded");
  EXPECT_TRUE(Contains(text, "in /run/nvidia/driver")) << text;
  EXPECT_TRUE(Contains(text, "see the log of the driver container")) << text;

  text = Judged({{{.root = kHost, .nvml_version = "550.1", .module_version = "550.1"}}, 1});
  EXPECT_TRUE(Contains(text, "has no libcuda.so.1")) << text;
  text = Judged({{{.root = kHost,
                   .nvml_version = "550.1",
                   .cuda_version = "535.2",
                   .module_version = "550.1"}},
                 1});
  EXPECT_TRUE(Contains(text, "libnvidia-ml belongs to driver 550.1 and libcuda to driver 535.2"));
  text = Judged({{{.root = kHost,
                   .nvml_version = "550.2",
                   .cuda_version = "550.2",
                   .module_version = "550.1"}},
                 1},
                "version mismatch");
  EXPECT_TRUE(Contains(text, "reboot the node")) << text;
}

TEST(DriverReportTest, OfTwoDriversTheOneOfTheLoadedModuleIsUsedAndBothAreNamed) {
  DriverCandidate host = Whole(kHost), container = Whole(kContainer, "570.2");
  EXPECT_EQ(ChooseDriver({host, container}), 0u);
  host.module_version = container.module_version = "570.2";
  EXPECT_EQ(ChooseDriver({host, container}), 1u);
  const std::string text = Judged({{host, container}, 1});
  EXPECT_TRUE(
      text.starts_with("DriverConflict: the node has two drivers: the host has 550.1 and a "
                       "driver container (/run/nvidia/driver) has 570.2; a driver container"))
      << text;
  EXPECT_TRUE(Contains(text, "nvidia.com/gpu.deploy.driver=false"));
  host.module_version = container.module_version = "1.2";
  EXPECT_EQ(ChooseDriver({host, container}), 0u) << "the host's first, as NVIDIA's components";
}

TEST(DriverReportTest, TheModulesVersionIsRead) {
  EXPECT_EQ(KernelModuleVersion("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue\n"
                                "GCC version: gcc 12.2.0\n"),
            "550.163.01");
  EXPECT_EQ(KernelModuleVersion(
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n"),
            "570.86.15");
  EXPECT_EQ(KernelModuleVersion(""), "");
  EXPECT_EQ(KernelModuleVersion("NVRM version:\nGCC version: 12.2.0"), "");
}

TEST(DriverReportTest, TheVersionsOfADriverAreReadFromItsFiles) {
  TempDir dir;
  const std::string lib = dir.path() + "/usr/lib/x86_64-linux-gnu";
  ASSERT_TRUE(MakeDirs(lib).ok());
  ASSERT_TRUE(MakeDirs(dir.path() + "/proc/driver/nvidia").ok());
  EXPECT_EQ(ReadDriverCandidate({"/", dir.path()}).nvml_version, "");
  std::ofstream(lib + "/libnvidia-ml.so.550.1") << "x";
  std::filesystem::create_symlink("libnvidia-ml.so.550.1", lib + "/libnvidia-ml.so.1");
  std::ofstream(dir.path() + "/proc/driver/nvidia/version") << "NVRM version: Module  550.1  x\n";
  const DriverCandidate candidate = ReadDriverCandidate({"/", dir.path()});
  EXPECT_EQ(candidate.nvml_version, "550.1");
  EXPECT_EQ(candidate.cuda_version, "");
  EXPECT_EQ(candidate.module_version, "550.1");
}

TEST(DriverReportTest, AnElfFileThatIsStillBeingWrittenIsNotWhole) {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_TRUE(IsWholeElf(own));
  TempDir dir;
  const std::string part = dir.path() + "/part.so";
  std::string bytes = *ReadFile(own, size_t{1} << 30);
  for (const size_t size :
       {bytes.size() - 1, bytes.size() / 2, size_t{70}, size_t{10}, size_t{0}}) {
    std::ofstream(part, std::ios::trunc) << bytes.substr(0, size);
    EXPECT_FALSE(IsWholeElf(part)) << size;
  }
  EXPECT_FALSE(IsWholeElf(dir.path() + "/missing"));
  // An offset that overflows when a length is added.
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.e_shoff = UINT64_MAX;
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::ofstream(part, std::ios::trunc) << bytes;
  EXPECT_FALSE(IsWholeElf(part));
}

}  // namespace
}  // namespace tessera::agent
