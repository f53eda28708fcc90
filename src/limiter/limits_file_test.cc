// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/limits_file.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "src/base/file.h"

namespace tessera::limiter {
namespace {

constexpr char kUuid[] = "GPU-00112233-4455-6677-8899-aabbccddeeff";

TEST(LimitsFileTest, ARestartedContainerKeepsItsLimits) {
  const TempDir dir;
  const std::string path = dir.path() + "/limits";
  LimitsFile first, again;
  ASSERT_EQ(first.Open(path.c_str()), 0);
  ASSERT_EQ(first.SetMemory(kUuid, 1 << 30), 0);
  ASSERT_EQ(again.Open(path.c_str()), 0);
  EXPECT_EQ(again.limits().gpu_count, 1u);
  EXPECT_EQ(again.limits().gpus[0].memory, 1u << 30);
  ASSERT_EQ(again.SetMemory(kUuid, 5), 0);
  EXPECT_EQ(first.limits().gpus[0].memory, 5u) << "one file, mapped twice";
}

TEST(LimitsFileTest, OnlyUuidsOfGpusAreLimited) {
  const TempDir dir;
  LimitsFile file;
  ASSERT_EQ(file.Open((dir.path() + "/limits").c_str()), 0);
  EXPECT_EQ(file.SetMemory("GPU-0", 1), EINVAL);
  EXPECT_EQ(file.SetMemory("GPU-00112233-4455-6677-8899-aabbccddeeffaa", 1), EINVAL);
  EXPECT_EQ(file.SetMemory("GPU-00112233-4455-6677-8899-aabbccddeegg", 1), EINVAL);
  EXPECT_EQ(file.limits().gpu_count, 0u);
  EXPECT_EQ(file.SetMemory(kUuid, 5), 0);
  EXPECT_EQ(file.limits().gpus[0].uuid[0], 0x00);
  EXPECT_EQ(file.limits().gpus[0].uuid[15], 0xff);
  for (uint32_t i = 1; i < kMaxGpus; ++i) {
    EXPECT_EQ(file.SetMemory(("GPU-" + std::string(30, '0') + std::to_string(10 + i)).c_str(), 1),
              0);
  }
  EXPECT_EQ(file.SetMemory("GPU-ffffffffffffffffffffffffffffffff", 1), ENOSPC);
  EXPECT_EQ(file.SetMemory(kUuid, 6), 0) << "the GPU has an entry";
}

TEST(LimitsFileTest, UnaccountedBytesNeedALimitedGpu) {
  const TempDir dir;
  LimitsFile file;
  ASSERT_EQ(file.Open((dir.path() + "/limits").c_str()), 0);
  EXPECT_EQ(file.SetUnaccounted(kUuid, 7), ENOENT);
  ASSERT_EQ(file.SetMemory(kUuid, 5), 0);
  ASSERT_EQ(file.SetUnaccounted(kUuid, 7), 0);
  EXPECT_EQ(file.limits().gpus[0].memory, 5u);
  EXPECT_EQ(file.limits().gpus[0].unaccounted, 7u);
  EXPECT_EQ(file.Find(kUuid), 0);
  EXPECT_EQ(file.Find("GPU-00112233-4455-6677-8899-aabbccddee00"), -1) << "another GPU";
  EXPECT_EQ(file.Find("GPU-0"), -1) << "not a UUID";
}

TEST(LimitsFileTest, EveryUserReadsTheFileAndOnlyTheOwnerWritesIt) {
  const TempDir dir;
  const std::string path = dir.path() + "/limits";
  const mode_t old = ::umask(0077);
  LimitsFile file;
  ASSERT_EQ(file.Open(path.c_str()), 0);
  ::umask(old);
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST(LimitsFileTest, AFileThatIsTooShortOrOfAnotherKindIsRejected) {
  const TempDir dir;
  const std::string path = dir.path() + "/limits";
  std::ofstream(path) << "too short";
  LimitsFile file;
  EXPECT_EQ(file.Open(path.c_str()), EPROTO);
  std::ofstream(path) << std::string(sizeof(Limits), 'x');
  EXPECT_EQ(file.Open(path.c_str()), EPROTO);
  EXPECT_EQ(file.Open((dir.path() + "/none/limits").c_str()), ENOENT);
}

}  // namespace
}  // namespace tessera::limiter
