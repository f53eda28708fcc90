// SPDX-License-Identifier: Apache-2.0
#include "src/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera {
namespace {

TEST(FileTest, AtomicWriteReplacesTheFileAndSetsItsMode) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "a");
  ASSERT_TRUE(WriteFileAtomically(path, "old", 0600).ok());
  ASSERT_TRUE(WriteFileAtomically(path, "new", 0640).ok());
  EXPECT_EQ(*ReadFile(path), "new");
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_EQ(ListDir(dir.path())->size(), 1u) << "no temporary file stays";
}

TEST(FileTest, AtomicWriteIntoAMissingDirNamesThePath) {
  const Status status = WriteFileAtomically("/nonexistent-folder/a", "x", 0600);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent-folder/a"), std::string::npos);
}

TEST(FileTest, OutputFollowsLinksAndOpensPipes) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/file", "old", 0600).ok());
  ASSERT_EQ(::symlink("file", (dir.path() + "/link").c_str()), 0);
  const Result<Fd> link = OpenOutput(dir.path() + "/link");
  ASSERT_TRUE(link.ok()) << link.status().ToString();
  EXPECT_EQ(*ReadFile(dir.path() + "/file"), "old");
  ASSERT_TRUE(WriteOutput(link->get(), "new").ok());
  EXPECT_EQ(*ReadFile(dir.path() + "/file"), "new");

  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Fd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const Result<Fd> writer = OpenOutput(pipe);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  ASSERT_TRUE(WriteOutput(writer->get(), "through").ok());
  char text[16] = {};
  EXPECT_EQ(::read(reader.get(), text, sizeof text), 7);
  EXPECT_STREQ(text, "through");
  EXPECT_EQ(OpenOutput(dir.path() + "/none/file").status().code(), Code::kNotFound);
}

TEST(FileTest, FingerprintChangesWhenTheTargetOfALinkIsReplaced) {
  const TempDir dir;
  const std::string link = JoinPath(dir.path(), "link");
  EXPECT_EQ(FileFingerprint(link), "");
  ASSERT_TRUE(WriteFileAtomically(JoinPath(dir.path(), "a"), "token", 0600).ok());
  ASSERT_EQ(::symlink("a", link.c_str()), 0);
  const std::string before = FileFingerprint(link);
  EXPECT_NE(before, "");
  EXPECT_EQ(FileFingerprint(link), before);
  ASSERT_TRUE(WriteFileAtomically(JoinPath(dir.path(), "a"), "other", 0600).ok());
  EXPECT_NE(FileFingerprint(link), before);
}

TEST(FileTest, ReadRejectsFilesAboveTheLimit) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "a");
  ASSERT_TRUE(WriteFileAtomically(path, std::string(100, 'x'), 0600).ok());
  EXPECT_TRUE(ReadFile(path, 100).ok());
  EXPECT_EQ(ReadFile(path, 99).status().code(), Code::kResourceExhausted);
}

TEST(FileTest, ReadsProcFilesWhoseSizeIsNotKnown) {
  EXPECT_NE(ReadFile("/proc/self/status")->find("Pid:"), std::string::npos);
}

TEST(FileTest, ReadingADirectoryIsAnError) {
  EXPECT_EQ(ReadFile("/").status().code(), Code::kInvalidArgument);
}

TEST(FileTest, MakeDirsMakesParentsAndAcceptsExistingOnes) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "a/b/c");
  EXPECT_TRUE(MakeDirs(path).ok());
  EXPECT_TRUE(MakeDirs(path).ok());
  EXPECT_TRUE(PathExists(path));
}

TEST(FileTest, PathsAreSplitAndJoined) {
  EXPECT_EQ(JoinPath("/a/", "/b"), "/a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(DirName("/a"), "/");
  EXPECT_EQ(DirName("a"), ".");
  EXPECT_EQ(BaseName("/a/b"), "b");
}

TEST(FdTest, AMoveTransfersOwnership) {
  Fd a(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int raw = a.get();
  Fd b = std::move(a);
  EXPECT_FALSE(a.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(b.get(), raw);
  b.Reset();
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

}  // namespace
}  // namespace tessera
