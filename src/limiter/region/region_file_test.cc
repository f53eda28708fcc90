// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/region_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "src/base/file.h"

namespace tessera::limiter {
namespace {

constexpr uint32_t kTestMagic = 0x54534554;
constexpr size_t kOldSize = 5000, kNewSize = 70000;  // not whole pages
constexpr size_t kOldFieldOffset = 4992, kNewFieldOffset = 69992;

// Version 6 adds fields at the end, and readers of version 5 still understand its files.
constexpr Layout kOlder{kTestMagic, kOldSize, 5, 5, 4};
constexpr Layout kNewer{kTestMagic, kNewSize, 6, 5, 5};

class RegionFileTest : public ::testing::Test {
 protected:
  void Make(const Layout& layout) { ASSERT_EQ(FillNewFile(fd_.get(), layout, 0644), 0); }
  // Null: EPROTO.
  uint64_t* Map(const Layout& layout, bool writable) {
    void* mapping = nullptr;
    const int error = MapFile(fd_.get(), layout, writable, &mapping);
    EXPECT_TRUE(error == 0 || error == EPROTO) << error;
    return static_cast<uint64_t*>(mapping);
  }

  TempDir dir_;
  const Fd fd_{::open((dir_.path() + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
};

uint64_t& At(uint64_t* file, size_t offset) { return file[offset / sizeof(uint64_t)]; }

TEST_F(RegionFileTest, AnOlderFileGrowsWhenANewerProgramMapsItWritable) {
  Make(kOlder);
  uint64_t* older = Map(kOlder, false);
  uint64_t* newer = Map(kNewer, true);
  ASSERT_TRUE(older != nullptr && newer != nullptr);
  At(newer, kOldFieldOffset) = 7;
  EXPECT_EQ(At(older, kOldFieldOffset), 7u) << "a running reader gets the new value";
  EXPECT_EQ(At(newer, kNewFieldOffset), 0u);
  At(newer, kNewFieldOffset) = 8;
  EXPECT_NE(Map(kOlder, false), nullptr) << "other readers of the older version can map the file";
  EXPECT_EQ(At(Map(kNewer, false), kNewFieldOffset), 8u);
}

TEST_F(RegionFileTest, FieldsThatAnOlderFileLacksAreZero) {
  Make(kOlder);
  uint64_t* newer = Map(kNewer, false);
  uint64_t* older = Map(kOlder, true);
  ASSERT_TRUE(older != nullptr && newer != nullptr);
  At(older, kOldFieldOffset) = 7;
  EXPECT_EQ(At(newer, kOldFieldOffset), 7u);
  EXPECT_EQ(At(newer, kNewFieldOffset), 0u);
  EXPECT_EQ(::lseek(fd_.get(), 0, SEEK_END), off_t(kOldSize));
}

TEST_F(RegionFileTest, AnOlderProgramReadsAndWritesANewerFile) {
  Make(kNewer);
  uint64_t* older = Map(kOlder, true);
  uint64_t* newer = Map(kNewer, false);
  ASSERT_TRUE(older != nullptr && newer != nullptr);
  At(older, kOldFieldOffset) = 7;
  EXPECT_EQ(At(newer, kOldFieldOffset), 7u);
  EXPECT_EQ(::lseek(fd_.get(), 0, SEEK_END), off_t(kNewSize));
}

TEST_F(RegionFileTest, AnOlderProgramRejectsAFileThatExcludesIt) {
  Make({kTestMagic, kNewSize, 6, /*oldest_reader=*/6, 5});
  EXPECT_EQ(Map(kOlder, false), nullptr);
  EXPECT_NE(Map(kNewer, false), nullptr);
}

TEST_F(RegionFileTest, ANewerProgramRejectsAFileThatIsTooOld) {
  Make({kTestMagic, kOldSize, 4, 4, 4});
  EXPECT_NE(Map(kOlder, false), nullptr);
  EXPECT_EQ(Map(kNewer, false), nullptr);
}

TEST_F(RegionFileTest, ATruncatedFileIsRejected) {
  Make(kNewer);
  ASSERT_EQ(::ftruncate(fd_.get(), kOldSize), 0);
  EXPECT_EQ(Map(kNewer, true), nullptr);
  EXPECT_EQ(Map(kOlder, true), nullptr);
  ASSERT_EQ(::ftruncate(fd_.get(), 3), 0);
  EXPECT_EQ(Map(kNewer, true), nullptr);
}

TEST_F(RegionFileTest, AFileOfAnotherKindIsRejected) {
  Make({kTestMagic + 1, kNewSize, 6, 5, 5});
  EXPECT_EQ(Map(kNewer, false), nullptr);
}

}  // namespace
}  // namespace tessera::limiter
