// SPDX-License-Identifier: Apache-2.0
// Images and bundles that were made to do harm. Each is refused with a clear message, or its trick
// has no effect.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/runtime/container_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class HostileImage : public ContainerFixture {
 protected:
  void SetUp() override {
    ContainerFixture::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(path("host/dir"));
    ASSERT_TRUE(WriteFileAtomically(path("host/secret"), "secret\n", 0600).ok());
    before_ = Tree(path("host"));
    AddEnv("NVIDIA_VISIBLE_DEVICES=0");
    config().Find("root")->Set("readonly", Json::Bool(false));
  }
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(Tree(path("host")), before_);
    }
    ContainerFixture::TearDown();
  }
  void Link(const std::string& name, const std::string& target) {
    fs::remove_all(JoinPath(rootfs(), name));
    fs::create_symlink(target, JoinPath(rootfs(), name));
  }

 private:
  std::map<std::string, std::string> before_;
};
INSTANTIATE_TEST_SUITE_P(LowLevel, HostileImage, ::testing::Values("runc", "crun"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(HostileImage, WithDevAsALinkOutIsRejected) {
  for (const std::string& target : {path("host/dir"), std::string("../../host/dir")}) {
    Link("dev", target);
    const SubprocessResult result = Run();
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("the image has /dev as a symbolic link"));
  }
}

TEST_P(HostileImage, WithDevTesseraAsALinkOutIsHarmless) {
  fs::create_symlink(path("host/dir"), rootfs() + "/dev/tessera");
  const auto image = Tree(rootfs());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_EQ(Tree(rootfs()), image);
}

TEST_P(HostileImage, WithItsLinkerCacheAsALinkOutIsGivenLibrariesByTheEnvironment) {
  Link("etc/ld.so.cache", path("host/secret"));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=/dev/tessera/lib\n"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
}

TEST_P(HostileImage, WithEtcAsALinkOutIsGivenLibrariesByTheEnvironment) {
  Link("etc", path("host"));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=/dev/tessera/lib\n"));
}

TEST_P(HostileImage, WithLdSoConfOrItsFolderAsALinkOutIsGivenLibrariesByTheEnvironment) {
  for (const std::string& name : {std::string("etc/ld.so.conf.d"), std::string("etc/ld.so.conf")}) {
    AddLinkerCache();
    Link(name, path(name.ends_with(".d") ? "host/dir" : "host/secret"));
    const SubprocessResult result = Run();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=/dev/tessera/lib\n"));
    EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
    fs::remove(JoinPath(rootfs(), name));
  }
}

TEST_P(HostileImage, WithLinksOutWhereTheLinkersFilesAreWrittenIsHarmless) {
  AddLinkerCache();
  Link("etc/.ld.so.cache.tessera", path("host/secret"));
  Link("etc/ld.so.conf.d/.00-tessera.conf.tessera", path("host/dir"));
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("env LD_LIBRARY_PATH=(unset)"));
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
}

TEST_P(HostileImage, WithALinkOutInPlaceOfOurOwnFileHasTheCacheMounted) {
  AddLinkerCache();
  Link("etc/ld.so.conf.d/00-tessera.conf", path("host/secret"));
  const auto image = Tree(rootfs());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_EQ(Tree(rootfs()), image);
}

TEST_P(HostileImage, WithItsLibraryDirAsALinkOutGetsNoLinksThere) {
  for (const std::string& target : {path("host/dir"), std::string("../../../../host/dir"),
                                    std::string("/"), std::string("../..")}) {
    fs::create_directories(rootfs() + "/usr/lib");
    Link("usr/lib/x86_64-linux-gnu", target);
    const auto image = Tree(rootfs());
    const SubprocessResult result = Run();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
    EXPECT_EQ(Tree(rootfs()), image) << target;
  }
}

TEST_P(HostileImage, WithLinksOutOrDirsInPlaceOfLibrariesKeepsThem) {
  fs::create_directories(rootfs() + "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  for (const char* name : {"libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"}) {
    Link(std::string("usr/lib/x86_64-linux-gnu/") + name, path("host/secret"));
  }
  const auto image = Tree(rootfs());
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
  EXPECT_EQ(Tree(rootfs()), image);
}

TEST_P(HostileImage, WithAFifoOrGarbageAsLinkerCacheIsGivenLibrariesByTheEnvironment) {
  // The program is static, because a dynamic linker would itself wait to read from the FIFO.
  SetArgs({"/bin/probe-static"});
  const std::string cache = rootfs() + "/etc/ld.so.cache";
  ASSERT_EQ(::mkfifo(cache.c_str(), 0644), 0);
  EXPECT_THAT(Run().out, HasSubstr("env LD_LIBRARY_PATH=/dev/tessera/lib\n"));
  fs::remove(cache);
  ASSERT_TRUE(
      WriteFileAtomically(cache, "glibc-ld.so.cache1.1" + std::string(28, '\xff'), 0644).ok());
  EXPECT_THAT(Run().out, HasSubstr("env LD_LIBRARY_PATH=/dev/tessera/lib\n"));
}

TEST_P(HostileImage, WithTheHostsDevIsRejectedWhereTheNodeIsMissingThere) {
  RemoveMount("/dev");
  AddMount("/dev", "bind", path("host/dir"), {"rbind", "rw"});
  AddMount("/run", "tmpfs", "tmpfs", {"nosuid"});
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("cannot be made: the container's /dev is " + path("host/dir")));
}

TEST_P(HostileImage, WithoutATmpfsIsRejected) {
  RemoveMount("/dev");
  AddMount("/dev", "bind", path("driver/dev"), {"rbind", "ro"});
  const SubprocessResult result = Run();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("the driver's files cannot be mounted"));
}

TEST_P(HostileImage, TruncatedConfigIsRejectedWithFileAndOffset) {
  const std::string text = config().Pretty();
  const std::string file = bundle() + "/config.json";
  ASSERT_TRUE(WriteFileAtomically(file, text.substr(0, text.size() / 2), 0600).ok());
  const SubprocessResult result = RunAsItIs();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr(file));
  EXPECT_THAT(result.err, HasSubstr("at byte"));
  EXPECT_FALSE(PathExists(bundle() + "/tessera"));
}

TEST_P(HostileImage, ConfigOfTenMebibytesWorks) {
  if (std::string_view(GetParam()) == "runc") {
    AddAnnotation("padding", std::string(10u << 20, 'x'));
  } else {
    // crun copies each annotation, so there are a thousand of 10 KiB here, which make a file of the
    // same size.
    for (int i = 0; i < 1000; ++i) {
      AddAnnotation("padding" + std::to_string(i), std::string(10u << 10, 'x'));
    }
  }
  const SubprocessResult result = Run();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("library libcuda.so.1 loaded"));
}

}  // namespace
}  // namespace tessera
