// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/guarded_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

constexpr size_t kPage = 4096;

Fd FileOf(size_t pages) {
  Fd file(::memfd_create("guarded", MFD_CLOEXEC));
  const std::string text(pages * kPage, 'x');
  EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return file;
}

char ByteAt(const char* data, size_t offset) {
  return *static_cast<const volatile char*>(data + offset);
}

TEST(GuardedMappingTest, ReadsLaterWrites) {
  const Fd file = FileOf(2);
  GuardedMapping mapping(file.get(), kPage + 10, 100);
  ASSERT_TRUE(mapping.valid());
  EXPECT_EQ(::pwrite(file.get(), "y", 1, kPage + 12), 1);
  char byte = 0;
  EXPECT_TRUE(mapping.Read([&](const char* data) { byte = ByteAt(data, 2); }));
  EXPECT_EQ(byte, 'y');
}

TEST(GuardedMappingTest, ReportsATruncatedFile) {
  const Fd file = FileOf(3), other = FileOf(1);
  GuardedMapping mapping(file.get(), 0, 3 * kPage), whole(other.get(), 0, kPage);
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  char first = 0, last = 1;
  EXPECT_FALSE(mapping.Read([&](const char* data) {
    first = ByteAt(data, 0);
    last = ByteAt(data, 2 * kPage);
  }));
  EXPECT_EQ(first, 'x');
  EXPECT_EQ(last, 0);
  EXPECT_FALSE(mapping.valid());
  EXPECT_TRUE(whole.Read([](const char* data) { EXPECT_EQ(ByteAt(data, 5), 'x'); }));
}

TEST(GuardedMappingTest, SurvivesATruncationDuringARead) {
  const Fd file = FileOf(4);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) {
      EXPECT_EQ(::ftruncate(file.get(), 0), 0);
      EXPECT_EQ(::ftruncate(file.get(), 4 * kPage), 0);
    }
  });
  int truncated_reads = 0;
  for (int i = 0; i < 100'000 && truncated_reads < 100; ++i) {
    GuardedMapping mapping(file.get(), 0, 4 * kPage);
    truncated_reads +=
        !mapping.Read([](const char* data) { EXPECT_NE(ByteAt(data, 3 * kPage), 'y'); });
  }
  stop = true;
  writer.join();
  EXPECT_GT(truncated_reads, 0);
}

void ReadBeyondAnotherFile() {
  const Fd file = FileOf(1), other = FileOf(1);
  const GuardedMapping mapping(file.get(), 0, kPage);
  void* memory = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, other.get(), 0);
  if (::ftruncate(other.get(), 0) == 0) (void)ByteAt(static_cast<char*>(memory), 0);
  ::_exit(0);
}

TEST(GuardedMappingDeathTest, FaultsOutsideTheMappingStillEndTheProgram) {
  EXPECT_DEATH(ReadBeyondAnotherFile(), "");
}

}  // namespace
}  // namespace tessera::agent
