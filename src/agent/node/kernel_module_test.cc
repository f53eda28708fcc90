// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/device_nodes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

namespace fs = std::filesystem;

// A root directory that has a shell and the shell's libraries.
class KernelModuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "chroot needs root";
    for (const char* file :
         {"/bin/sh", "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"}) {
      if (!PathExists(file)) GTEST_SKIP() << file << " is not here";
      fs::create_directories(DirName(dir_.path() + file));
      fs::copy(file, dir_.path() + file);
    }
  }
  // Installs modprobe behind an absolute link, as kmod does.
  void SetModprobe(const std::string& script) {
    fs::create_directories(dir_.path() + "/sbin");
    fs::create_directories(dir_.path() + "/bin");
    ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/bin/kmod", "#!/bin/sh\n" + script, 0755).ok());
    fs::remove(dir_.path() + "/sbin/modprobe");
    fs::create_symlink("/bin/kmod", dir_.path() + "/sbin/modprobe");
  }
  TempDir dir_;
};

TEST_F(KernelModuleTest, RunsModprobeInItsRootWithoutTheAgentsEnvironment) {
  ::setenv("TESSERA_SECRET", "x", 1);
  SetModprobe("echo \"$1 $TESSERA_SECRET\" >/loaded\n");
  EXPECT_TRUE(LoadKernelModule(dir_.path(), "nvidia-uvm").ok());
  ::unsetenv("TESSERA_SECRET");
  EXPECT_EQ(ReadFile(dir_.path() + "/loaded").value(), "nvidia-uvm \n");
}

TEST_F(KernelModuleTest, FailuresNameTheRemedy) {
  EXPECT_EQ(LoadKernelModule(dir_.path(), "nvidia-uvm").code(), Code::kNotFound);
  SetModprobe("exit 3\n");
  const Status failed = LoadKernelModule(dir_.path(), "nvidia-uvm");
  EXPECT_EQ(failed.code(), Code::kFailedPrecondition);
  EXPECT_NE(failed.message().find("modprobe nvidia-uvm failed"), std::string::npos);
  EXPECT_NE(failed.message().find("exit code 3"), std::string::npos) << failed.message();
}

}  // namespace
}  // namespace tessera::agent
