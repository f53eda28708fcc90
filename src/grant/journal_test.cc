// SPDX-License-Identifier: Apache-2.0
#include "src/grant/journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

namespace tessera::grant {
namespace {

using Records = std::vector<std::string>;

class JournalTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.path() + "/grants.journal"; }

  Result<Journal> Open() {
    auto dir = DirFd::Open(dir_.path());
    EXPECT_TRUE(dir.ok());
    return Journal::Open(std::move(*dir), "grants.journal", &recovery_);
  }

  void Fill(const Records& records) {
    auto journal = Open();
    ASSERT_TRUE(journal.ok()) << journal.status().ToString();
    for (const std::string& record : records) ASSERT_TRUE(journal->Append(record).ok());
  }

  // Without the preallocated zeros.
  std::string Content() const {
    const std::string all = *ReadFile(path());
    return all.substr(0, all.find_last_not_of('\0') + 1);
  }

  void SetContent(std::string_view data) {
    const Fd fd(::open(path().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    ASSERT_TRUE(WriteFd(fd.get(), data).ok());
  }

  TempDir dir_;
  Journal::Recovery recovery_;
};

TEST_F(JournalTest, ReadsBackItsRecords) {
  Fill({"one", "two", std::string(100'000, 'x')});
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{"one", "two", std::string(100'000, 'x')}));
  EXPECT_EQ(recovery_.torn_bytes, 0u);
  EXPECT_TRUE(recovery_.damage.empty());
}

TEST_F(JournalTest, UnsyncedRecordsKeepTheirOrder) {
  {
    auto journal = Open();
    ASSERT_TRUE(journal.ok());
    ASSERT_TRUE(journal->AppendUnsynced("one").ok());
    ASSERT_TRUE(journal->Append("two").ok());
    ASSERT_TRUE(journal->AppendUnsynced("three").ok());
  }
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{"one", "two", "three"}));
}

TEST_F(JournalTest, OnlyTheOwnerCanReadTheFile) {
  Fill({"one"});
  struct stat info;
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(JournalTest, TruncatesATornRecordAtAnyOffset) {
  Fill({"first record", "second record"});
  const std::string whole = Content();
  Fill({"third record"});
  const std::string longer = Content();
  for (size_t length = whole.size(); length < longer.size(); ++length) {
    SetContent(longer.substr(0, length));
    auto journal = Open();
    ASSERT_TRUE(journal.ok()) << length;
    EXPECT_EQ(recovery_.records, (Records{"first record", "second record"})) << length;
    EXPECT_LE(recovery_.torn_bytes, length - whole.size());
    EXPECT_GE(recovery_.torn_bytes,
              longer.substr(0, length).find_last_not_of('\0') + 1 - whole.size());
    EXPECT_TRUE(recovery_.damage.empty());
    ASSERT_TRUE(journal->Append("after").ok());
    ASSERT_TRUE(Open().ok());
    EXPECT_EQ(recovery_.records, (Records{"first record", "second record", "after"})) << length;
  }
}

// Encodes by the format in journal.h.
std::string Encoded(std::string_view payload) {
  const auto u32 = [](uint32_t value) {
    std::string bytes;
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
  };
  const std::string length = u32(static_cast<uint32_t>(payload.size()));
  return length + u32(Crc32c(payload, Crc32c(length))) + std::string(payload);
}
const std::string kStart = "TSRJNL1\n";

TEST_F(JournalTest, ReadsAndWritesTheDocumentedFormat) {
  Fill({"one", "two"});
  EXPECT_EQ(Content(), kStart + Encoded("one") + Encoded("two"));
}

// A crash may leave any prefix of the file: whole records stay, the rest is truncated.
TEST_F(JournalTest, KeepsTheWholeRecordsOfEveryPrefix) {
  const Records records = {"x", "second record", "third"};
  std::string whole = kStart;
  std::vector<size_t> ends;  // of each record
  for (const std::string& record : records) ends.push_back((whole += Encoded(record)).size());
  for (size_t length = 0; length <= whole.size(); ++length) {
    const std::string prefix = whole.substr(0, length);
    SetContent(prefix);
    Records expected;
    size_t good_end = length < kStart.size() ? 0 : kStart.size();
    for (size_t i = 0; i < records.size() && ends[i] <= length; ++i) {
      expected.push_back(records[i]);
      good_end = ends[i];
    }
    // Zeros at the end of a length field look like preallocated zeros.
    const size_t last = prefix.find_last_not_of('\0') + 1;
    {
      auto journal = Open();
      ASSERT_TRUE(journal.ok()) << length;
      EXPECT_EQ(recovery_.records, expected) << length;
      EXPECT_EQ(recovery_.torn_bytes, last > good_end ? last - good_end : 0) << length;
      EXPECT_EQ(recovery_.damaged_bytes, 0u) << length;
      EXPECT_EQ(recovery_.damage, "") << length;
      EXPECT_EQ(journal->size(), std::max(good_end, kStart.size())) << length;
      ASSERT_TRUE(journal->Append("after").ok());
    }
    EXPECT_EQ(Content(), whole.substr(0, std::max(good_end, kStart.size())) + Encoded("after"))
        << length;
    ASSERT_TRUE(Open().ok());
    EXPECT_EQ(recovery_.torn_bytes, 0u) << length;
  }
}

// A damaged byte loses only the record around it.
TEST_F(JournalTest, DamageOfAnyByteLosesAtMostOneRecord) {
  const Records records = {"first record", "x", "third record"};
  std::string whole = kStart;
  std::vector<size_t> ends;
  for (const std::string& record : records) ends.push_back((whole += Encoded(record)).size());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    ::unlink((path() + ".damaged").c_str());
    SetContent(damaged);
    ASSERT_TRUE(Open().ok()) << at;
    if (at < kStart.size()) {
      EXPECT_EQ(recovery_.records, records) << at;
      EXPECT_EQ(recovery_.damaged_bytes, kStart.size()) << at;
      EXPECT_EQ(recovery_.damage, "the file does not start like a journal");
      continue;
    }
    size_t hit = 0;
    while (ends[hit] <= at) ++hit;
    const size_t begin = hit == 0 ? kStart.size() : ends[hit - 1];
    Records expected = records;
    expected.erase(expected.begin() + static_cast<long>(hit));
    EXPECT_EQ(recovery_.records, expected) << at;
    // A damaged last record looks like a torn one.
    const bool last = hit + 1 == records.size();
    EXPECT_EQ(recovery_.damaged_bytes, last ? 0 : ends[hit] - begin) << at;
    EXPECT_EQ(recovery_.torn_bytes, last ? ends[hit] - begin : 0) << at;
    EXPECT_EQ(recovery_.damage, last ? "" : fmt::format("no valid record at offset {}", begin));
    EXPECT_EQ(PathExists(path() + ".damaged"), !last) << at;
    ASSERT_TRUE(Open().ok());
    EXPECT_EQ(recovery_.records, expected) << at;
    EXPECT_EQ(recovery_.damaged_bytes + recovery_.torn_bytes, 0u)
        << "repaired after it was reported";
  }
}

TEST_F(JournalTest, CountsAllDamagedBytesAndNamesTheFirstPlace) {
  const std::string junk = "junk without a record";
  SetContent(kStart + junk + Encoded("one") + junk + Encoded("y") + "torn");
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{"one", "y"}));
  EXPECT_EQ(recovery_.damaged_bytes, 2 * junk.size());
  EXPECT_EQ(recovery_.torn_bytes, 4u);
  EXPECT_EQ(recovery_.damage, "no valid record at offset 8");
}

TEST_F(JournalTest, EmptyRecordIsDamage) {
  SetContent(kStart + Encoded("one") + Encoded("") + Encoded("two"));
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{"one", "two"}));
  EXPECT_EQ(recovery_.damaged_bytes, Encoded("").size());
}

TEST_F(JournalTest, RejectsRecordsAboveTheLimit) {
  const std::string largest(Journal::kMaxRecordSize, 'x');
  Fill({largest});
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, Records{largest});
  SetContent(kStart + Encoded(largest + "x") + Encoded("after"));
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, Records{"after"});
  EXPECT_EQ(recovery_.damaged_bytes, Encoded(largest + "x").size());
}

TEST_F(JournalTest, TruncatesATornRecordInThePreallocatedZeros) {
  const std::string torn = Encoded("a record that tore").substr(0, 15);
  SetContent(kStart + Encoded("one") + torn + std::string(4096, '\0'));
  auto journal = Open();
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(recovery_.records, Records{"one"});
  EXPECT_EQ(recovery_.torn_bytes, torn.size());
  EXPECT_EQ(std::filesystem::file_size(path()), (kStart + Encoded("one")).size());
}

TEST_F(JournalTest, RecordMayEndInZeros) {
  const std::string record("zeros\0\0\0", 8);
  Fill({record});
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, Records{record});
  EXPECT_EQ(recovery_.torn_bytes, 0u);
  EXPECT_EQ(recovery_.damaged_bytes, 0u);
  Fill({"after"});
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{record, "after"}));
}

TEST_F(JournalTest, ReservesTheBlocksOfTheNextFile) {
  const auto reserved = [&] {
    struct stat info {};
    EXPECT_EQ(::stat((path() + ".new").c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  };
  auto journal = Open();
  ASSERT_TRUE(journal.ok());
  EXPECT_GE(reserved(), 64u << 10);
  const std::string record(1000, 'r');
  ASSERT_TRUE(journal->Replace(Records(300, record)).ok());
  EXPECT_GE(reserved(), journal->size());
  EXPECT_GE(journal->size(), 300'000u);
}

TEST_F(JournalTest, ZerosAtTheEndAreNotARecordOrDamage) {
  Fill({"one"});
  SetContent(Content() + std::string(4096, '\0'));
  auto journal = Open();
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(recovery_.records, Records{"one"});
  EXPECT_EQ(recovery_.torn_bytes, 0u);
  ASSERT_TRUE(journal->Append("two").ok());
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{"one", "two"}));
}

TEST_F(JournalTest, AppendsRarelyExtendTheFile) {
  auto journal = Open();
  ASSERT_TRUE(journal.ok());
  std::set<uintmax_t> sizes;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(journal->Append(std::string(400, 'x')).ok());
    sizes.insert(std::filesystem::file_size(path()));
  }
  EXPECT_LE(sizes.size(), 5u);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records.size(), 1000u);
}

TEST_F(JournalTest, OpenKeepsThePreallocatedZeros) {
  Fill({"one"});
  const auto size = std::filesystem::file_size(path());
  EXPECT_GT(size, Content().size());
  EXPECT_LE(size, Content().size() + (128u << 10));
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(std::filesystem::file_size(path()), size);
  auto journal = Open();
  const std::string record(100'000, 'r');
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(journal->Append(record).ok());
    EXPECT_LE(std::filesystem::file_size(path()), journal->size() + (128u << 10));
  }
}

TEST_F(JournalTest, KeepsRecordsAroundDamageAndReportsIt) {
  Fill({"first record", "second record", "third record"});
  const std::string whole = Content();
  const size_t start = whole.find("second") - 8;
  const size_t end = whole.find("third") - 8;
  for (size_t at = start; at < end; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    SetContent(damaged);
    ASSERT_TRUE(Open().ok()) << at;
    EXPECT_EQ(recovery_.records, (Records{"first record", "third record"})) << at;
    EXPECT_EQ(recovery_.damaged_bytes, end - start);
    EXPECT_FALSE(recovery_.damage.empty());
    EXPECT_EQ(*ReadFile(path() + ".damaged"), damaged);
    ASSERT_TRUE(Open().ok());
    EXPECT_TRUE(recovery_.damage.empty()) << "repaired after it was reported";
  }
}

TEST_F(JournalTest, ForeignFileIsKeptAside) {
  SetContent("these are not the records that you look for");
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(recovery_.records.empty());
  EXPECT_FALSE(recovery_.damage.empty());
  EXPECT_EQ(*ReadFile(path() + ".damaged"), "these are not the records that you look for");
}

TEST_F(JournalTest, ReplaceLeavesOnlyTheNewList) {
  auto journal = Open();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(journal->Append("old").ok());
  ASSERT_TRUE(journal->Replace({"a", "b"}).ok());
  ASSERT_TRUE(journal->Append("c").ok());
  EXPECT_EQ(journal->size(), Content().size());
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{"a", "b", "c"}));
}

TEST_F(JournalTest, CrashDuringReplaceLeavesTheOldList) {
  Fill({"old"});
  const Fd half(::open((path() + ".new").c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_TRUE(WriteFd(half.get(), "TSRJ" + std::string(10'000, 'x')).ok());
  auto journal = Open();
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(recovery_.records, Records{"old"});
  EXPECT_TRUE(journal->Replace({"new"}).ok());
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, Records{"new"});
  EXPECT_EQ(recovery_.torn_bytes, 0u);
}

TEST_F(JournalTest, FullDiskIsAnErrorAndLeavesNoPartialRecord) {
  auto journal = Open();
  ASSERT_TRUE(journal->Append("one").ok());
  const std::string before = Content();
  // The file size limit makes write(2) stop in the middle of the record, like a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small = {.rlim_cur = before.size() + 20, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = journal->Append(std::string(1000, 'x'));
  const Status replaced = journal->Replace({std::string(1000, 'x')});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("grants.journal"), std::string::npos);
  EXPECT_FALSE(replaced.ok());
  EXPECT_EQ(Content(), before);
  EXPECT_TRUE(journal->Append("two").ok()) << "room again";
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records, (Records{"one", "two"}));
}

TEST_F(JournalTest, ReplaceWithAShorterListWorksOnAFullDisk) {
  if (::mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, "size=512k") != 0) {
    GTEST_SKIP() << "needs CAP_SYS_ADMIN for a small tmpfs";
  }
  struct Unmount {
    const std::string& path;
    ~Unmount() { ::umount2(path.c_str(), MNT_DETACH); }
  } unmount{dir_.path()};
  auto journal = Open();
  const std::string record(1000, 'r');
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(journal->Append(record).ok());
  const Fd filler(::open((dir_.path() + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  while (WriteFd(filler.get(), std::string(512, 'x')).ok()) {
  }
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = journal->Append(record);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  for (int round = 0; round < 3; ++round) {
    const Status replaced = journal->Replace({"live"});
    ASSERT_TRUE(replaced.ok()) << replaced.ToString();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(journal->Append(record).ok()) << i;
  }
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(recovery_.records.size(), 21u);
}

TEST_F(JournalTest, RejectsRecordsThatOpenWouldReject) {
  auto journal = Open();
  EXPECT_FALSE(journal->Append("").ok());
  EXPECT_FALSE(journal->Append(std::string(Journal::kMaxRecordSize + 1, 'x')).ok());
}

TEST_F(JournalTest, DoesNotFollowALink) {
  ASSERT_EQ(::symlink("/dev/null", path().c_str()), 0);
  EXPECT_FALSE(Open().ok());
}

TEST(Crc32cTest, MatchesThePublishedCheckValue) { EXPECT_EQ(Crc32c("123456789"), 0xe3069283u); }

}  // namespace
}  // namespace tessera::grant
