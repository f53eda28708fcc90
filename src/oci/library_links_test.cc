// SPDX-License-Identifier: Apache-2.0
// The links to the driver's libraries in the library directory of an image.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <map>

#include "src/oci/testing/injection_fixture.h"

namespace tessera::oci {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class LibraryLinksTest : public InjectionTest {
 protected:
  static constexpr std::string_view kDir = kFakeLibraryDir;

  void MakeDir(std::string_view name) { fs::create_directories(JoinPath(rootfs(), name)); }
  // The names in a directory of the image, with the targets of links.
  std::map<std::string, std::string> Files(std::string_view dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(JoinPath(rootfs(), dir))) {
      files[entry.path().filename()] = entry.is_symlink() ? fs::read_symlink(entry.path()) : "";
    }
    return files;
  }
  static std::map<std::string, std::string> Links(const std::string& dir = "/dev/tessera/lib/") {
    std::map<std::string, std::string> links;
    for (const char* name :
         {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"}) {
      links[name] = dir + name;
    }
    return links;
  }
};

TEST_F(LibraryLinksTest, TheImagesLibraryDirGetsLinksWithoutTheDriversVersion) {
  injection_.driver.libraries.push_back({.host_path = path("x"),
                                         .file_name = "libnvidia-glcore.so.550.54.15",
                                         .soname = "libnvidia-glcore.so.550.54.15"});
  for (const std::string& dir : {std::string(kDir), std::string("usr/lib64")}) {
    MakeDir(dir);
    MakeDir("usr/lib");
    for (const bool read_only : {false, true}) {
      for (int start = 0; start < 2; ++start) Injected(Document(PrivateDev(), read_only));
      EXPECT_EQ(Files(dir), Links()) << dir;
    }
    fs::remove_all(rootfs() + "/usr");
  }
}

TEST_F(LibraryLinksTest, TheDirOfTheDistributionIsPreferredToLib64) {
  MakeDir(kDir);
  MakeDir("usr/lib64");
  Injected(Document(PrivateDev()));
  EXPECT_EQ(Files(kDir), Links());
  EXPECT_THAT(Files("usr/lib64"), ::testing::IsEmpty());
}

TEST_F(LibraryLinksTest, Lib64MayBeALinkToLib) {
  MakeDir("usr/lib");
  fs::create_symlink("lib", rootfs() + "/usr/lib64");
  Injected(Document(PrivateDev()));
  EXPECT_EQ(Files("usr/lib"), Links());
}

TEST_F(LibraryLinksTest, AMuslImageGetsNoLinks) {
  MakeDir("usr/lib");
  MakeDir("lib");
  Injected(Document(PrivateDev()));
  EXPECT_THAT(Files("usr/lib"), ::testing::IsEmpty());
  EXPECT_THAT(Files("lib"), ::testing::IsEmpty());
}

TEST_F(LibraryLinksTest, ALimitedContainersLinksLeadToTheLimiter) {
  MakeDir(kDir);
  Write(std::string(kDir) + "/libnvidia-ml.so.1", MakeLibrary("libnvidia-ml.so.1"));
  injection_.limiter = Limiter{.library_dir = "/opt/tessera/lib", .limits_dir = path("limits")};
  ConfigDocument document = Document(PrivateDev());
  for (int start = 0; start < 2; ++start) {
    document = Injected(document);
    const auto files = Files(kDir);
    EXPECT_EQ(files.at("libcuda.so.1"), "/dev/tessera/lib/libcuda.so.1");
    EXPECT_EQ(files.at("libnvidia-ml.so.1"), "") << "the image's own file";
    EXPECT_THAT(Destinations(document),
                Contains("/" + std::string(kDir) + "/libnvidia-ml.so.1").Times(1))
        << "the limiter is mounted over the image's own file";
    EXPECT_THAT(Destinations(document), Not(Contains("/" + std::string(kDir) + "/libcuda.so.1")));
  }
}

TEST_F(LibraryLinksTest, LinksOfAnEarlierStartFollowTheDriversDir) {
  MakeDir(kDir);
  fs::create_symlink("/nowhere", JoinPath(rootfs(), kDir) + "/libcuda.so");
  Injected(Document(PrivateDev()));
  Injected(Document({{"/run", "tmpfs", "x"}}));
  auto links = Links("/run/tessera/lib/");
  links["libcuda.so"] = "/nowhere";
  EXPECT_EQ(Files(kDir), links);
}

TEST_F(LibraryLinksTest, NamesInTheImageStayAsTheyAre) {
  MakeDir(std::string(kDir) + "/libcuda.so.1");
  Write(std::string(kDir) + "/libnvidia-ml.so.1", "x");
  fs::create_symlink(path("outside"), JoinPath(rootfs(), kDir) + "/libcuda.so");
  auto files = Files(kDir);
  Injected(Document(PrivateDev()));
  files.insert(*Links().find("libnvidia-ptxjitcompiler.so.1"));
  EXPECT_EQ(Files(kDir), files);
  EXPECT_THAT(Files(std::string(kDir) + "/libcuda.so.1"), ::testing::IsEmpty());
  EXPECT_FALSE(PathExists(path("outside")));
}

TEST_F(LibraryLinksTest, NoLinkIsMadeThroughALinkOfTheImage) {
  fs::create_directories(path("outside"));
  MakeDir("usr/lib");
  MakeDir("opt");
  const std::string dir = JoinPath(rootfs(), kDir);
  for (const std::string& target :
       {std::string("/"), std::string("../.."), std::string("../../../../.."),
        std::string("../../../../outside"), path("outside"), std::string("/opt")}) {
    fs::create_symlink(target, dir);
    Injected(Document(PrivateDev()));
    EXPECT_THAT(Files("/"), ::testing::SizeIs(3)) << "etc, opt, usr; " << target;
    EXPECT_THAT(Files("usr"), ::testing::SizeIs(1)) << target;
    EXPECT_THAT(Files("opt"), ::testing::IsEmpty()) << target;
    EXPECT_EQ(ListDir(path("outside")).value().size(), 0u) << target;
    fs::remove(dir);
  }
  fs::remove_all(rootfs() + "/usr");
  fs::create_symlink(path("outside"), rootfs() + "/usr");
  fs::create_directories(path("outside/lib/") + TESSERA_MULTIARCH);
  Injected(Document(PrivateDev()));
  EXPECT_EQ(ListDir(path("outside/lib/") + TESSERA_MULTIARCH).value().size(), 0u);
}

TEST_F(LibraryLinksTest, LibrariesThatThePodMountsHaveNoLinks) {
  MakeDir(kDir);
  Injected(Document({{"/dev", "tmpfs", "x"}, {"/lib/libcuda.so.1", "bind", path("own")}}));
  EXPECT_THAT(Files(kDir), Not(Contains(::testing::Key("libcuda.so.1"))));
  EXPECT_THAT(Files(kDir), Contains(::testing::Key("libnvidia-ml.so.1")));
}

TEST_F(LibraryLinksTest, NoLinkIsMadeBelowAMount) {
  MakeDir(kDir);
  Injected(Document({{"/dev", "tmpfs", "x"}, {"/usr", "bind", path("own")}}));
  EXPECT_THAT(Files(kDir), ::testing::IsEmpty());
}

TEST_F(LibraryLinksTest, LinksAreSkippedWithoutAnErrorInAReadOnlyRoot) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "mounts need root";
  }
  MakeDir(kDir);
  ASSERT_EQ(::mount(rootfs().c_str(), rootfs().c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(::mount(nullptr, rootfs().c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr),
            0);
  ConfigDocument document = Document(PrivateDev(), true);
  const auto how = Inject(injection_, FindInjectionTarget(document, "").value(), &document);
  ASSERT_EQ(::umount(rootfs().c_str()), 0);
  ASSERT_TRUE(how.ok()) << how.status().message();
  EXPECT_THAT(*how, HasSubstr("; no links in the image: "));
  EXPECT_THAT(*how, HasSubstr("Read-only file system"));
  EXPECT_THAT(Files(kDir), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tessera::oci
