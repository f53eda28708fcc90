// SPDX-License-Identifier: Apache-2.0
#include "src/oci/rooted_dir.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "src/oci/config_document.h"

namespace tessera::oci {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RootedDirTest : public ::testing::Test {
 protected:
  RootedDirTest() {
    EXPECT_TRUE(MakeDirs(At("folder")).ok());
    EXPECT_TRUE(WriteFileAtomically(At("folder/file"), "text", 0644).ok());
    Link("/folder/file", "link");
    Link("nowhere", "dangling");
    Link("loop", "loop");
  }
  std::string At(const std::string& name) const { return dir_.path() + "/" + name; }
  void Link(const std::string& target, const std::string& name) const {
    EXPECT_EQ(::symlink(target.c_str(), At(name).c_str()), 0);
  }
  Result<std::string> Read(const std::string& path, Links links) const {
    return root_.Read(path, links, 100);
  }

  TempDir dir_;
  const RootedDir root_ = RootedDir::Open(dir_.path()).value();
};

TEST_F(RootedDirTest, ErrorsDistinguishRejectedLinksFromMissingFiles) {
  EXPECT_EQ(Read("link", Links::kInRoot).value(), "text");
  const Status refused = Read("link", Links::kReject).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("a symbolic link, which is not followed"));
  for (const Links links : {Links::kInRoot, Links::kReject}) {
    EXPECT_EQ(Read("folder/none", links).status().code(), Code::kNotFound);
    EXPECT_EQ(Read("folder", links).status().code(), Code::kInvalidArgument);
  }
  EXPECT_THAT(Read("loop", Links::kInRoot).status().message(),
              ::testing::Not(HasSubstr("is not followed")));
}

TEST_F(RootedDirTest, ADanglingLinkIsNotMissing) {
  EXPECT_TRUE(root_.IsMissing("none"));
  EXPECT_TRUE(root_.IsMissing("none/below"));
  EXPECT_FALSE(root_.IsMissing("folder/file"));
  EXPECT_FALSE(root_.IsMissing("dangling"));
  EXPECT_FALSE(root_.Exists("dangling"));
  // A path below a file cannot exist, which is a different case.
  EXPECT_FALSE(root_.IsMissing("folder/file/below"));
}

TEST_F(RootedDirTest, RealPathsAreRelativeToTheRoot) {
  EXPECT_EQ(root_.RealPath("link").value(), "folder/file");
  EXPECT_EQ(root_.RealPath("/").value(), ".");
  EXPECT_EQ(root_.RealPath("dangling").status().code(), Code::kNotFound);
  EXPECT_EQ(RootedDir::Open("/").value().RealPath("/proc/self/../1").value(), "proc/1");
}

TEST_F(RootedDirTest, ListsNamesInOrderWithoutTheDirItself) {
  EXPECT_THAT(root_.List("/").value(), ElementsAre("dangling", "folder", "link", "loop"));
  EXPECT_THAT(root_.List("folder").value(), ElementsAre("file"));
  EXPECT_EQ(root_.List("none").status().code(), Code::kNotFound);
}

TEST_F(RootedDirTest, HostPathsReferToFilesAndSockets) {
  EXPECT_EQ(root_.HostPath("link").value(), At("folder/file"));
  EXPECT_EQ(root_.HostPath("folder").status().code(), Code::kInvalidArgument);
}

TEST_F(RootedDirTest, AFileThatCannotBeWrittenStaysUnchanged) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 10;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
  const Status status = root_.ReplaceFile("folder/file", std::string(100, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(root_.List("folder").value(), ElementsAre("file"));
  EXPECT_EQ(Read("folder/file", Links::kReject).value(), "text");
}

TEST_F(RootedDirTest, MakeLinksReplacesOnlyLinksThatTheCallerAccepts) {
  Link("/old/a", "folder/stale");
  Link("/other", "folder/foreign");
  EXPECT_TRUE(MakeDirs(At("folder/dir")).ok());
  const auto is_own = [](std::string_view target) { return target.starts_with("/old/"); };
  const std::vector<std::string> names = {"new", "stale", "foreign", "dir", "file"};
  for (int start = 0; start < 2; ++start) {
    ASSERT_TRUE(root_.MakeLinks("folder", "/x", names, is_own).ok());
    EXPECT_EQ(root_.ReadLink("folder/new").value(), "/x/new");
    EXPECT_EQ(root_.ReadLink("folder/stale").value(), "/x/stale");
    EXPECT_EQ(root_.ReadLink("folder/foreign").value(), "/other");
    EXPECT_THAT(root_.List("folder/dir").value(), ElementsAre());
    EXPECT_EQ(Read("folder/file", Links::kReject).value(), "text");
  }
  EXPECT_THAT(root_.List("folder").value(), ElementsAre("dir", "file", "foreign", "new", "stale"));
}

TEST_F(RootedDirTest, LinksAreNotMadeThroughALink) {
  const TempDir outside;
  Link(outside.path(), "out");
  Link("/folder", "in");
  for (const char* dir : {"out", "in", "in/../out"}) {
    EXPECT_EQ(root_.MakeLinks(dir, "/", {"x"}, [](auto) { return true; }).code(),
              Code::kInvalidArgument)
        << dir;
  }
  EXPECT_EQ(root_.MakeLinks("none", "/", {}, [](auto) { return true; }).code(), Code::kNotFound);
  EXPECT_THAT(root_.List("folder").value(), ElementsAre("file"));
  EXPECT_EQ(ListDir(outside.path()).value().size(), 0u);
}

TEST_F(RootedDirTest, LinksGetTheOwnerOfTheirDir) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(::chown(At("folder").c_str(), 12, 34), 0);
  ASSERT_TRUE(root_.MakeLinks("folder", "/", {"x"}, [](auto) { return true; }).ok());
  struct stat info;
  ASSERT_EQ(::lstat(At("folder/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12u);
  EXPECT_EQ(info.st_gid, 34u);
}

TEST(ReplaceFile, AFailureLeavesNoOtherFile) {
  const TempDir dir;
  std::filesystem::create_directories(dir.path() + "/config.json/full");
  EXPECT_FALSE(ReplaceFile(dir.path() + "/config.json", "x").ok());
  EXPECT_EQ(ListDir(dir.path()).value().size(), 1u);
}

TEST(RootedDirReplaceFile, MakesAndReplacesFilesAndFollowsNoLink) {
  const TempDir dir;
  std::filesystem::create_directories(dir.path() + "/root/etc");
  std::filesystem::create_directories(dir.path() + "/outside");
  const RootedDir root = RootedDir::Open(dir.path() + "/root").value();
  ASSERT_TRUE(root.ReplaceFile("etc/x", "1").ok());
  ASSERT_TRUE(root.ReplaceFile("etc/x", "2").ok());
  EXPECT_EQ(ReadFile(dir.path() + "/root/etc/x").value(), "2");
  struct stat info;
  ASSERT_EQ(::stat((dir.path() + "/root/etc/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  EXPECT_EQ(ListDir(dir.path() + "/root/etc").value().size(), 1u);
  std::filesystem::create_symlink("../../outside", dir.path() + "/root/link");
  std::filesystem::create_symlink("../../outside/x", dir.path() + "/root/etc/y");
  EXPECT_EQ(root.ReplaceFile("link/x", "3").code(), Code::kInvalidArgument);
  EXPECT_EQ(root.ReplaceFile("etc/y", "3").code(), Code::kInvalidArgument);
  EXPECT_EQ(root.ReplaceFile("nothing/x", "3").code(), Code::kNotFound);
  EXPECT_EQ(ListDir(dir.path() + "/outside").value().size(), 0u);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown((dir.path() + "/root/etc/x").c_str(), 12, 34), 0);
  ASSERT_EQ(::chown((dir.path() + "/root/etc").c_str(), 56, 78), 0);
  ASSERT_TRUE(root.ReplaceFile("etc/x", "4").ok());
  ASSERT_TRUE(root.ReplaceFile("etc/new", "5").ok());
  ASSERT_EQ(::stat((dir.path() + "/root/etc/x").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12u);
  EXPECT_EQ(info.st_gid, 34u);
  ASSERT_EQ(::stat((dir.path() + "/root/etc/new").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 56u);
}

}  // namespace
}  // namespace tessera::oci
