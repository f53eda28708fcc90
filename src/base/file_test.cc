// SPDX-License-Identifier: Apache-2.0
#include "src/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace tessera {
namespace {

TEST(FileTest, AtomicWriteReplacesAndKeepsTheModeAsked) {
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

TEST(FileTest, AtomicWriteIntoAMissingFolderNamesThePath) {
  const Status status = WriteFileAtomically("/nonexistent-folder/a", "x", 0600);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent-folder/a"), std::string::npos);
}

TEST(FileTest, ReadRefusesWhatIsLongerThanTheLimit) {
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

TEST(FileTest, MakeDirsMakesParentsAndMayRunTwice) {
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

TEST(FdTest, MovesOwnAndCloseOnce) {
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
