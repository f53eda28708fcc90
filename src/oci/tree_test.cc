// SPDX-License-Identifier: Apache-2.0
#include "src/oci/tree.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "src/base/file.h"

namespace tessera::oci {
namespace {

TEST(TreeTest, ADirMayAlreadyExistForAFileInIt) {
  Tree tree;
  tree.AddMountPoint("a/b/file");
  tree.AddDir("a/b");
  tree.AddDir("a");
  const TempDir dir;
  EXPECT_TRUE(tree.MakeIn(dir.path()).ok());
  EXPECT_TRUE(PathExists(dir.path() + "/a/b/file"));
}

TEST(TreeTest, ADirHasItsModeRegardlessOfTheUmask) {
  Tree tree;
  tree.AddDir("open", 01777);
  tree.AddDir("plain");
  const TempDir dir;
  const mode_t before = ::umask(0027);
  EXPECT_TRUE(tree.MakeIn(dir.path()).ok());
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat((dir.path() + "/open").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 01777u);
  ASSERT_EQ(::stat((dir.path() + "/plain").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755u);
}

TEST(TreeTest, AnExistingFileInPlaceOfAnEntryIsAnError) {
  const TempDir dir;
  Tree file_over_dir;
  file_over_dir.AddMountPoint("a/file");
  file_over_dir.AddLink("a", "elsewhere");
  EXPECT_FALSE(file_over_dir.MakeIn(dir.path()).ok());
  Tree dir_below_file;
  dir_below_file.AddMountPoint("b");
  dir_below_file.AddDir("b/c");
  EXPECT_FALSE(dir_below_file.MakeIn(dir.path()).ok());
}

}  // namespace
}  // namespace tessera::oci
