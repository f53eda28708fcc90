// SPDX-License-Identifier: Apache-2.0
#include "src/oci/driver_root.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "src/oci/elf.h"
#include "src/oci/ld_cache.h"
#include "src/oci/testing/fake_driver.h"

namespace tessera::oci {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DriverRoot : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return JoinPath(dir_.path(), name); }
  void Make() { ASSERT_TRUE(MakeFakeDriver(dir_.path(), TwoGpus()).ok()); }
  TempDir dir_;
};

TEST_F(DriverRoot, FindsVersionLibrariesAndPrograms) {
  Make();
  const DriverFiles files = FindDriver(dir_.path(), kDefaultCapabilities).value();
  EXPECT_EQ(files.version, "550.54.15");
  ASSERT_EQ(files.libraries.size(), 3u);
  EXPECT_EQ(files.libraries[0].soname, "libnvidia-ml.so.1");
  EXPECT_EQ(files.libraries[1].file_name, "libcuda.so.550.54.15");
  EXPECT_EQ(files.libraries[1].host_path, path("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"));
  ASSERT_EQ(files.binaries.size(), 1u);
  EXPECT_EQ(files.binaries[0].name, "nvidia-smi");
}

TEST_F(DriverRoot, GivesOnlyWhatTheCapabilitiesNeed) {
  Make();
  const DriverFiles files = FindDriver(dir_.path(), kUtility).value();
  ASSERT_EQ(files.libraries.size(), 1u);
  EXPECT_EQ(files.libraries[0].soname, "libnvidia-ml.so.1");
}

TEST_F(DriverRoot, NamesAllThatTheDriverLeavesOutInOneNote) {
  Make();
  const DriverFiles files = FindDriver(dir_.path(), kDefaultCapabilities).value();
  ASSERT_EQ(files.notes.size(), 1u);
  EXPECT_TRUE(files.notes[0].starts_with("not in this driver: lib")) << files.notes[0];
  EXPECT_THAT(files.notes[0], HasSubstr(".so.550.54.15, lib"));
}

TEST_F(DriverRoot, FindsLibrariesThatOnlyTheLinkerCacheOfTheRootKnows) {
  Make();
  fs::create_directories(path("opt/driver"));
  fs::rename(path("usr/lib/x86_64-linux-gnu"), path("opt/driver/lib"));
  LdCache cache;
  cache.entries = {{.name = "libcuda.so.1",
                    .path = "/opt/driver/lib/libcuda.so.1",
                    .flags = NativeLdCacheFlags()}};
  fs::create_directories(path("etc"));
  ASSERT_TRUE(WriteFileAtomically(path("etc/ld.so.cache"), WriteLdCache(cache), 0644).ok());
  EXPECT_EQ(FindDriver(dir_.path(), kCompute).value().version, "550.54.15");
}

TEST_F(DriverRoot, ResolvesAbsoluteLinksInsideTheRoot) {
  Make();
  fs::create_directories(path("real"));
  fs::rename(path("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"), path("real/libcuda"));
  fs::create_symlink("/real/libcuda", path("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15"));
  const DriverFiles files = FindDriver(dir_.path(), kCompute).value();
  ASSERT_FALSE(files.libraries.empty());
  EXPECT_EQ(files.libraries[0].host_path, path("real/libcuda"));
}

TEST_F(DriverRoot, WithoutADriverTheErrorSaysWhereItLooked) {
  fs::create_directories(path("usr/lib64"));
  const auto files = FindDriver(dir_.path(), kDefaultCapabilities);
  EXPECT_EQ(files.status().code(), Code::kNotFound);
  EXPECT_THAT(files.status().message(), HasSubstr(dir_.path()));
  EXPECT_THAT(files.status().message(), HasSubstr("usr/lib64"));
  EXPECT_THAT(FindDriver("/nowhere", kCompute).status().message(), HasSubstr("/nowhere"));
}

TEST_F(DriverRoot, ADamagedLibcudaIsAnErrorAndAnotherLibraryANote) {
  Make();
  const std::string dir = path("usr/lib/x86_64-linux-gnu/");
  ASSERT_TRUE(
      WriteFileAtomically(dir + "libnvidia-ptxjitcompiler.so.550.54.15", "no ELF", 0755).ok());
  EXPECT_EQ(FindDriver(dir_.path(), kCompute).value().libraries.size(), 1u);
  ASSERT_TRUE(WriteFileAtomically(dir + "libcuda.so.550.54.15", "", 0755).ok());
  const auto files = FindDriver(dir_.path(), kCompute);
  EXPECT_EQ(files.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(files.status().message(), HasSubstr("libcuda.so.550.54.15"));
}

TEST_F(DriverRoot, ListsGpusInTheOrderOfTheBus) {
  Make();
  const auto gpus = ListGpus(dir_.path()).value();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].bus_id, "0000:07:00.0");
  EXPECT_EQ(gpus[0].minor, 1);
  EXPECT_EQ(gpus[1].uuid, "GPU-22222222-2222-2222-2222-222222222222");
  EXPECT_EQ(gpus[1].model, "NVIDIA A100-SXM4-80GB");
}

TEST_F(DriverRoot, LinksThatAreRefusedAreNotFollowed) {
  fs::create_directories(path("a"));
  ASSERT_TRUE(WriteFileAtomically(path("a/file"), "x", 0644).ok());
  fs::create_symlink("a", path("link"));
  const RootedDir root = RootedDir::Open(dir_.path()).value();
  EXPECT_TRUE(root.Read("link/file", Links::kInRoot, 10).ok());
  EXPECT_EQ(root.Read("link/file", Links::kRefuse, 10).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(root.Read("../../../a/file", Links::kRefuse, 10).value_or(""), "x");
  EXPECT_FALSE(root.OpenFile("a", Links::kRefuse).ok());
  fs::create_symlink("/nowhere", path("dangling"));
  EXPECT_FALSE(root.IsMissing("dangling"));
  EXPECT_TRUE(root.IsMissing("nothing"));
}

class Elf : public ::testing::Test {
 protected:
  Result<ElfInfo> Read(const std::string& data) {
    const std::string path = JoinPath(dir_.path(), "lib");
    EXPECT_TRUE(WriteFileAtomically(path, data, 0644).ok());
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return ReadElf(fd.get());
  }
  TempDir dir_;
};

TEST_F(Elf, ReadsTheSoname) {
  EXPECT_EQ(Read(MakeLibrary("libcuda.so.1")).value().soname, "libcuda.so.1");
  EXPECT_EQ(Read(MakeLibrary("")).value().soname, "");
  const Fd libc(::open("/lib/x86_64-linux-gnu/libc.so.6", O_RDONLY | O_CLOEXEC));
  if (libc.valid()) {
    EXPECT_EQ(ReadElf(libc.get()).value().soname, "libc.so.6");
  }
}

TEST_F(Elf, EveryTruncationAndEveryFlippedByteOfTheHeadersIsSurvived) {
  const std::string good = MakeLibrary("libcuda.so.1");
  for (size_t length = 0; length < good.size(); length += 7) (void)Read(good.substr(0, length)).ok();
  for (size_t at = 0; at < 400; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xff);
    (void)Read(bad).ok();
  }
  EXPECT_FALSE(Read(good.substr(0, 60)).ok());
  EXPECT_FALSE(Read("#!/bin/sh\nexit 0\n# longer than an identification").ok());
}

TEST(Capabilities, KnowsTheWords) {
  EXPECT_EQ(ParseCapabilities("").value(), kDefaultCapabilities);
  EXPECT_EQ(ParseCapabilities(" video , utility").value(), kVideo | kUtility);
  EXPECT_EQ(ParseCapabilities("all").value(), kAllCapabilities);
  EXPECT_EQ(ParseCapabilities("compat32").value(), 0u);
  EXPECT_THAT(ParseCapabilities("compute,cuda").status().message(), HasSubstr("\"cuda\""));
}

}  // namespace
}  // namespace tessera::oci
