// SPDX-License-Identifier: Apache-2.0
#include "src/oci/ld_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "src/base/file.h"
#include "src/base/subprocess.h"

namespace tessera::oci {
namespace {

using ::testing::HasSubstr;

LdCacheEntry Entry(const std::string& name, const std::string& path, int32_t flags = 0x0303) {
  return {.name = name, .path = path, .flags = flags};
}

LdCache Sample() {
  LdCache cache;
  cache.entries = {Entry("libz.so.1", "/lib/libz.so.1"), Entry("libc.so.6", "/lib/libc.so.6"),
                   Entry("libcuda.so.1", "/usr/lib/libcuda.so.1"),
                   Entry("libcuda.so.1", "/usr/lib32/libcuda.so.1", 0x0003)};
  cache.hwcaps = {"x86-64-v3"};
  LdCacheEntry fast = Entry("libz.so.1", "/lib/glibc-hwcaps/x86-64-v3/libz.so.1");
  fast.hwcap = uint64_t{1} << 62;
  cache.entries.insert(cache.entries.begin(), fast);
  return cache;
}

TEST(LdCache, RoundTrips) {
  const LdCache read = ParseLdCache(WriteLdCache(Sample())).value();
  EXPECT_EQ(read.hwcaps, Sample().hwcaps);
  ASSERT_EQ(read.entries.size(), 5u);
  // Descending by name; entries of glibc-hwcaps precede the plain entry.
  EXPECT_EQ(read.entries[0].path, "/lib/glibc-hwcaps/x86-64-v3/libz.so.1");
  EXPECT_EQ(read.entries[1].path, "/lib/libz.so.1");
  EXPECT_EQ(read.entries[4].name, "libc.so.6");
}

TEST(LdCache, SkipsTheOlderFormatBeforeTheNewer) {
  const std::string newer = WriteLdCache(Sample());
  std::string old = "ld.so-1.7.0";
  old.push_back('\0');
  const uint32_t count = 1;
  old.append(reinterpret_cast<const char*>(&count), 4);
  old.append(12 + 4, '\0');  // one entry, and padding to the next multiple of eight
  EXPECT_EQ(ParseLdCache(old + newer).value().entries, ParseLdCache(newer).value().entries);
}

TEST(LdCache, SkipsOtherSectionsOfTheExtension) {
  constexpr size_t kExtensionOffset = 32, kSectionSize = 16;
  std::string data = WriteLdCache(Sample());
  uint32_t old_extension;
  std::memcpy(&old_extension, data.data() + kExtensionOffset, sizeof(old_extension));
  const std::string magic = data.substr(old_extension, 4);
  const std::string hwcaps = data.substr(old_extension + 8, kSectionSize);
  const uint32_t new_extension = static_cast<uint32_t>((data.size() + 7) / 8 * 8);
  data.resize(new_extension);
  std::memcpy(data.data() + kExtensionOffset, &new_extension, sizeof(new_extension));
  const uint32_t count = 2;
  data += magic + std::string(reinterpret_cast<const char*>(&count), sizeof(count)) +
          std::string(kSectionSize, '\0') + hwcaps;
  EXPECT_EQ(ParseLdCache(data).value().hwcaps, Sample().hwcaps);
}

TEST(LdCache, DriverEntriesReplaceEqualNamesAndFlags) {
  const LdCache merged =
      MergeLdCaches({Entry("libcuda.so.1", "/dev/tessera/lib/libcuda.so.1")}, Sample());
  std::vector<std::string> found;
  for (const LdCacheEntry& entry : merged.entries) {
    if (entry.name == "libcuda.so.1") found.push_back(entry.path);
  }
  EXPECT_THAT(found,
              ::testing::ElementsAre("/dev/tessera/lib/libcuda.so.1", "/usr/lib32/libcuda.so.1"));
}

TEST(LdCache, ComparesNumbersInNamesAsNumbers) {
  EXPECT_LT(CompareLibraryNames("libx.so.2", "libx.so.10"), 0);
  EXPECT_GT(CompareLibraryNames("libx.so.10", "libx.so.9"), 0);
  EXPECT_EQ(CompareLibraryNames("libx.so.1", "libx.so.1"), 0);
  EXPECT_LT(CompareLibraryNames("libx.so", "libx.so.1"), 0);
  EXPECT_GT(CompareLibraryNames("lib1", "liba"), 0);  // a digit sorts after a letter
}

TEST(LdCache, TheMachinesOwnCacheKeepsItsOrder) {
  const auto data = ReadFile("/etc/ld.so.cache");
  if (!data.ok()) GTEST_SKIP() << "this machine has no /etc/ld.so.cache";
  const LdCache cache = ParseLdCache(*data).value();
  ASSERT_FALSE(cache.entries.empty());
  EXPECT_EQ(ParseLdCache(WriteLdCache(cache)).value().entries, cache.entries);
}

TEST(LdCache, GlibcsLdconfigReadsAWrittenCache) {
  if (!PathExists("/sbin/ldconfig")) GTEST_SKIP() << "no ldconfig here";
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "cache");
  ASSERT_TRUE(WriteFileAtomically(path, WriteLdCache(Sample()), 0644).ok());
  const auto printed = RunProgram({"/sbin/ldconfig", "-p", "-C", path}, std::chrono::seconds(10));
  ASSERT_TRUE(printed.ok());
  EXPECT_EQ(printed->exit_code, 0) << printed->err;
  EXPECT_THAT(printed->out, HasSubstr("5 libs found"));
  EXPECT_THAT(printed->out, HasSubstr("libcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1"));
  EXPECT_THAT(printed->out, HasSubstr("hwcap: \"x86-64-v3\""));
}

TEST(LdCache, DamagedFilesDoNotCrash) {
  const std::string good = WriteLdCache(Sample());
  for (size_t length = 0; length < good.size(); ++length) {
    (void)ParseLdCache(good.substr(0, length)).ok();
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xff);
    const auto read = ParseLdCache(bad);
    if (read.ok()) (void)WriteLdCache(*read);
  }
  EXPECT_FALSE(ParseLdCache(good.substr(0, 100)).ok());
  EXPECT_FALSE(ParseLdCache("").ok());
}

TEST(LdCache, EntriesThatShareALongStringAreRejected) {
  LdCache cache;
  const std::string path(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) cache.entries.push_back(Entry("lib.so", path));
  const std::string file = WriteLdCache(cache);
  EXPECT_LT(file.size(), size_t{2} << 20) << "the file has the string once";
  EXPECT_EQ(ParseLdCache(file).status().code(), Code::kInvalidArgument);
}

TEST(LdCache, EveryTruncationIsReportedAsDamage) {
  LdCache plain = Sample();
  plain.entries.erase(plain.entries.begin());
  plain.hwcaps.clear();
  LdCache two = Sample();
  two.hwcaps.push_back("x86-64-v4");
  for (const LdCache& cache : {Sample(), plain, two}) {
    const std::string good = WriteLdCache(cache);
    EXPECT_EQ(ParseLdCache(good)->hwcaps, cache.hwcaps);
    for (size_t length = 0; length < good.size(); ++length) {
      EXPECT_FALSE(ParseLdCache(good.substr(0, length)).ok()) << length;
    }
  }
  constexpr size_t kHeaderSize = 48, kEntrySize = 24;
  EXPECT_THAT(
      ParseLdCache(WriteLdCache(plain).substr(0, kHeaderSize + 3 * kEntrySize)).status().message(),
      HasSubstr("fewer entries than announced"));
}

TEST(LdCache, ANameMayBeTheEndOfItsPath) {
  LdCache cache;
  cache.entries = {Entry("a", "/a")};
  EXPECT_EQ(ParseLdCache(WriteLdCache(cache)).value().entries, cache.entries);
}

TEST(LdCache, AcceptsLittleEndianOrUnspecifiedByteOrder) {
  constexpr size_t kFlagsOffset = 28;
  std::string text = WriteLdCache(Sample());
  for (const char flags : {0, 2}) {
    text[kFlagsOffset] = flags;
    EXPECT_TRUE(ParseLdCache(text).ok()) << int{flags};
  }
  for (const char flags : {1, 3}) {
    text[kFlagsOffset] = flags;
    EXPECT_THAT(ParseLdCache(text).status().message(), HasSubstr("byte order")) << int{flags};
  }
}

TEST(LdCache, EntriesOfUnknownHwcapsAreNotWritten) {
  LdCache cache = Sample();
  cache.entries[0].hwcap = (uint64_t{1} << 62) | cache.hwcaps.size();
  EXPECT_EQ(ParseLdCache(WriteLdCache(cache)).value().entries.size(), cache.entries.size() - 1);
}

TEST(LdCacheNames, DigitsInNamesAreComparedAsNumbers) {
  EXPECT_LT(CompareLibraryNames("libx.so.9", "libx.so.10"), 0);
  EXPECT_LT(CompareLibraryNames("libx.so.19", "libx.so.20"), 0);
  EXPECT_GT(CompareLibraryNames("libx.so.100", "libx.so.99"), 0);
  EXPECT_EQ(CompareLibraryNames("libx.so.09", "libx.so.9"), 0);
}

}  // namespace
}  // namespace tessera::oci
