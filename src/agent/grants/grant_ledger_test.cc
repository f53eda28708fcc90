// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <set>

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

constexpr const char* kGpuResource = "nvidia.com/gpu";
const WallTime kStart = WallTime(1'700'000'000s);

grant::Nonce NewNonce(WallTime made) {
  static const grant::TokenSigner signer(std::string(32, 'k'));
  return signer.Verify(kGpuResource, signer.Sign(kGpuResource, {"x"}, made))->nonce;
}

ContainerRef Container(int pod, const std::string& name = "main") {
  return {Uid("uid-" + std::to_string(pod)), "default", "pod-" + std::to_string(pod), name};
}

class MemoryLog : public grant::RecordLog {
 public:
  Status Append(std::string_view record) override {
    if (full || records.size() >= room) {
      return Status(Code::kResourceExhausted, "No space left on device");
    }
    records.emplace_back(record);
    ++flushed;
    return Status::Ok();
  }
  Status AppendUnsynced(std::string_view record) override {
    const int before = flushed;
    const Status status = Append(record);
    flushed = before;
    return status;
  }
  Status Replace(const std::vector<std::string>& all) override {
    if (full) return Status(Code::kResourceExhausted, "No space left on device");
    records = all;
    ++replaced;
    return Status::Ok();
  }
  std::vector<std::string> records;
  bool full = false;
  size_t room = SIZE_MAX;  // number of records that fit
  int replaced = 0;
  int flushed = 0;
};

// Whole GPUs, as the kubelet named them.
GrantLedger::Entry Whole(const grant::Nonce& nonce, const std::vector<std::string>& ids,
                         const ContainerRef& holder) {
  GrantLedger::Entry entry{.holder = holder, .claims = {{nonce, kGpuResource, ids}}};
  for (const std::string& id : ids) {
    entry.shares.push_back({.uuid = id, .compute = kWholeGpu, .memory = GiB(16)});
  }
  return entry;
}

GrantLedger::Entry Share(const grant::Nonce& nonce, const std::string& gpu, int milli, int gib,
                         const ContainerRef& holder, device::Phase phase = device::Phase::kMain) {
  return {.holder = holder,
          .phase = phase,
          .dialect = device::Dialect::kVcuda,
          .shares = {{.uuid = gpu, .compute = MilliGpu(milli), .memory = GiB(gib)}},
          .claims = {{nonce, "tencent.com/vcuda-core", {"c0000", "+29"}}}};
}

// Eight GPUs of 16 GiB.
const device::NodeInventory& Gpus() {
  static const device::NodeInventory inventory = [] {
    device::NodeInventory gpus;
    for (int i = 0; i < 8; ++i) {
      gpus.gpus.push_back({.uuid = "GPU-" + std::to_string(i), .memory = GiB(16)});
    }
    return gpus;
  }();
  return inventory;
}

class GrantLedgerTest : public ::testing::Test {
 protected:
  Status Bind(const grant::Nonce& nonce, std::vector<std::string> ids, const ContainerRef& holder) {
    return Bind(Whole(nonce, ids, holder));
  }
  Status Bind(const GrantLedger::Entry& entry) {
    return ledger_->Bind(entry, nullptr, Gpus(), now_);
  }
  Status Release(const ContainerRef& holder) {
    return ledger_->Release(GrantLedger::KeyOf(holder));
  }
  void Restart() {
    ledger_.emplace(&log_, log_.records, &skipped_);
    EXPECT_EQ(skipped_, 0u);
  }

  MemoryLog log_;
  size_t skipped_ = 0;
  WallTime now_ = kStart;
  std::optional<GrantLedger> ledger_{std::in_place, &log_, std::vector<std::string>{}, &skipped_};
};

TEST_F(GrantLedgerTest, ARepeatedRequestSucceedsAndWritesNoSecondRecord) {
  const grant::Nonce nonce = NewNonce(now_);
  EXPECT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  EXPECT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  EXPECT_EQ(log_.records.size(), 1u);
  Restart();
  EXPECT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
}

TEST_F(GrantLedgerTest, ReplayedTokenIsDeniedAndNamesTheOwner) {
  const grant::Nonce nonce = NewNonce(now_);
  ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  const Status other_pod = Bind(nonce, {"GPU-1"}, Container(2));
  EXPECT_EQ(other_pod.code(), Code::kPermissionDenied);
  EXPECT_NE(other_pod.message().find("default/pod-1"), std::string::npos) << other_pod.message();
  EXPECT_EQ(Bind(nonce, {"GPU-1"}, Container(1, "other")).code(), Code::kPermissionDenied);
}

TEST_F(GrantLedgerTest, TokenOfADeadPodIsDeniedToOthersAlsoAfterRestart) {
  const grant::Nonce nonce = NewNonce(now_);
  ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  ASSERT_TRUE(Release(Container(1)).ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Bind(nonce, {"GPU-1"}, Container(2)).code(), Code::kPermissionDenied);
    Restart();
  }
}

TEST_F(GrantLedgerTest, ReleasesDoNotWaitForTheDisk) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-" + std::to_string(i)}, Container(i)).ok());
  }
  ASSERT_EQ(log_.flushed, 3);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Release(Container(i)).ok());
  EXPECT_EQ(log_.flushed, 3);
  Restart();
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(GrantLedgerTest, APodThatWasReleasedByMistakeGetsItsGrantAgain) {
  const grant::Nonce nonce = NewNonce(now_);
  ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  ASSERT_TRUE(Release(Container(1)).ok());
  EXPECT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  Restart();
  EXPECT_EQ(ledger_->entries().size(), 1u);
}

TEST_F(GrantLedgerTest, DeviceOfALivePodIsRejected) {
  ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1", "GPU-2"}, Container(1)).ok());
  const Status status = Bind(NewNonce(now_), {"GPU-2", "GPU-3"}, Container(2));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("GPU-2 is still held by container main of pod default/pod-1"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(ledger_->entries().size(), 1u);
}

TEST_F(GrantLedgerTest, ContainersOfOnePodMayPassADeviceOn) {
  ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(1, "init")).ok());
  EXPECT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(1, "main")).ok());
}

TEST_F(GrantLedgerTest, AFullDiskRejectsAGrantUntilItHasRoom) {
  ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(1)).ok());
  log_.full = true;
  const grant::Nonce nonce = NewNonce(now_);
  const Status status = Bind(nonce, {"GPU-2"}, Container(2));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find("journal"), std::string::npos);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  log_.full = false;
  EXPECT_TRUE(Bind(nonce, {"GPU-2"}, Container(2)).ok());
  Restart();
  EXPECT_EQ(ledger_->entries().size(), 2u);
}

TEST_F(GrantLedgerTest, ForgetsHistoryBeforeAFullDiskRejectsAGrant) {
  const grant::Nonce nonce = NewNonce(now_);
  // Released and granted again: two records each time, of which one counts.
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
    ASSERT_TRUE(Release(Container(1)).ok());
  }
  ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  log_.room = log_.records.size();
  EXPECT_TRUE(Bind(NewNonce(now_), {"GPU-2"}, Container(2)).ok());
  EXPECT_EQ(log_.replaced, 1);
  log_.room = 2;
  EXPECT_FALSE(Bind(NewNonce(now_), {"GPU-3"}, Container(3)).ok());
  EXPECT_EQ(log_.replaced, 2) << "rewritten once";
  Restart();
  EXPECT_EQ(ledger_->entries().size(), 2u);
}

TEST_F(GrantLedgerTest, UnusedTokenExpires) {
  const grant::Nonce nonce = NewNonce(now_);
  const grant::Nonce used = NewNonce(now_), latest = NewNonce(now_);
  ASSERT_TRUE(Bind(used, {"GPU-1"}, Container(1)).ok());
  now_ += GrantLedger::kTokenLifetime;
  EXPECT_TRUE(Bind(latest, {"GPU-3"}, Container(3)).ok());
  now_ += 1s;
  EXPECT_EQ(Bind(nonce, {"GPU-2"}, Container(2)).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Bind(used, {"GPU-1"}, Container(1)).ok()) << "a used token does not expire";
}

TEST_F(GrantLedgerTest, SpentTokensAreForgottenOnlyWhenTheyAreTooOldToBeAccepted) {
  const grant::Nonce nonce = NewNonce(now_);
  ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  ASSERT_TRUE(Release(Container(1)).ok());
  now_ += GrantLedger::kTokenLifetime;
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(ledger_->spent_count(), 1u);
  now_ += 1s;
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(ledger_->spent_count(), 0u);
  EXPECT_EQ(Bind(nonce, {"GPU-1"}, Container(2)).code(), Code::kFailedPrecondition);
}

TEST_F(GrantLedgerTest, TidyRemovesHistory) {
  for (int i = 0; i < 1000; ++i) {
    const grant::Nonce nonce = NewNonce(now_);
    ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(i)).ok());
    ASSERT_TRUE(Release(Container(i)).ok());
    now_ += 1h;
    ASSERT_TRUE(ledger_->Tidy(now_).ok());
  }
  EXPECT_LT(log_.records.size(), 700u);
  EXPECT_GT(log_.replaced, 0);
  Restart();
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(GrantLedgerTest, RewritesTheJournalOnlyIfMostRecordsAreObsolete) {
  // The ledger keeps a grant, a release and a spent token for each container.
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(i)).ok());
    ASSERT_TRUE(Release(Container(i)).ok());
  }
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(log_.replaced, 0) << "400 records, of which 200 are needed";
  // The tokens expire, so that no record is needed.
  now_ += GrantLedger::kTokenLifetime + 1s;
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(log_.replaced, 1);
  EXPECT_TRUE(log_.records.empty());
  for (int i = 0; i < 128; ++i) {
    ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(i)).ok());
    ASSERT_TRUE(Release(Container(i)).ok());
  }
  now_ += GrantLedger::kTokenLifetime + 1s;
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(log_.replaced, 1) << "a journal of 256 records stays, whatever they are";
  ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(1)).ok());
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(log_.replaced, 1) << "257 records, of which one is needed";
}

TEST_F(GrantLedgerTest, AChoiceIsForgottenWithTheLastContainerOfItsPod) {
  const auto choose = [&](int pod, const std::string& container, const std::string& gpu) {
    const GrantLedger::Entry entry = Whole(NewNonce(now_), {gpu}, Container(pod, container));
    device::Assignment chosen;
    chosen.containers[container] = entry.shares;
    ASSERT_TRUE(ledger_->Bind(entry, &chosen, Gpus(), now_).ok());
  };
  choose(1, "first", "GPU-1");
  choose(1, "second", "GPU-2");
  choose(2, "main", "GPU-3");
  ASSERT_TRUE(Release(Container(1, "first")).ok());
  EXPECT_NE(ledger_->ChosenFor(Uid("uid-1")), nullptr);
  ASSERT_TRUE(Release(Container(1, "second")).ok());
  EXPECT_EQ(ledger_->ChosenFor(Uid("uid-1")), nullptr);
  EXPECT_NE(ledger_->ChosenFor(Uid("uid-2")), nullptr);
}

TEST_F(GrantLedgerTest, InvalidRecordsAreSkippedAndCounted) {
  ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(1)).ok());
  log_.records.insert(log_.records.begin(), {"", "{}", "[1]", R"({"do":"bind"})",
                                             R"({"do":"dance","nonce":"00"})", "\xff"});
  ledger_.emplace(&log_, log_.records, &skipped_);
  EXPECT_EQ(skipped_, 6u);
  EXPECT_EQ(ledger_->entries().size(), 1u);
}

TEST_F(GrantLedgerTest, SharesOfOneGpuAddUpToItsCapacity) {
  ASSERT_TRUE(Bind(Share(NewNonce(now_), "GPU-1", 300, 5, Container(1))).ok());
  ASSERT_TRUE(Bind(Share(NewNonce(now_), "GPU-1", 300, 5, Container(2))).ok());
  EXPECT_EQ(Bind(Share(NewNonce(now_), "GPU-1", 500, 1, Container(3))).code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(Bind(Share(NewNonce(now_), "GPU-1", 100, 7, Container(3))).code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(Bind(NewNonce(now_), {"GPU-1"}, Container(3)).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Bind(Share(NewNonce(now_), "GPU-1", 400, 6, Container(3))).ok());
  ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-2"}, Container(4)).ok());
  EXPECT_EQ(Bind(Share(NewNonce(now_), "GPU-2", 10, 1, Container(5))).code(),
            Code::kFailedPrecondition);
}

TEST_F(GrantLedgerTest, InitContainerPassesItsShareToMainContainers) {
  ASSERT_TRUE(
      Bind(Share(NewNonce(now_), "GPU-1", 900, 16, Container(1, "init"), device::Phase::kInit))
          .ok());
  EXPECT_TRUE(Bind(Share(NewNonce(now_), "GPU-1", 500, 8, Container(1, "a"))).ok());
  EXPECT_TRUE(Bind(Share(NewNonce(now_), "GPU-1", 500, 8, Container(1, "b"))).ok());
  EXPECT_FALSE(Bind(Share(NewNonce(now_), "GPU-1", 10, 1, Container(1, "c"))).ok());
  EXPECT_FALSE(Bind(Share(NewNonce(now_), "GPU-1", 10, 1, Container(2))).ok());
}

TEST_F(GrantLedgerTest, ContainerKeepsItsShareWhateverItsNextTokenSays) {
  const ContainerRef holder = Container(1);
  ASSERT_TRUE(Bind(Share(NewNonce(now_), "GPU-1", 300, 5, holder)).ok());
  ASSERT_TRUE(Bind(Share(NewNonce(now_), "GPU-2", 300, 5, holder)).ok());
  Restart();
  const GrantLedger::Entry* entry = ledger_->Find(holder);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->claims.size(), 2u);
  ASSERT_EQ(entry->shares.size(), 1u);
  EXPECT_EQ(entry->shares[0].uuid, "GPU-1");
}

TEST_F(GrantLedgerTest, ChoiceForAPodLivesAsLongAsItsEntries) {
  device::Assignment chosen;
  chosen.containers["main"] = {{.uuid = "GPU-1", .memory = GiB(2)}};
  chosen.containers["side"] = {{.uuid = "GPU-1", .memory = GiB(3)}};
  const auto entry = Share(NewNonce(now_), "GPU-1", 0, 2, Container(1));
  ASSERT_TRUE(ledger_->Bind(entry, &chosen, Gpus(), now_).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(ledger_->ChosenFor(Uid("uid-1")), nullptr);
    EXPECT_EQ(*ledger_->ChosenFor(Uid("uid-1")), chosen);
    Restart();
  }
  ASSERT_TRUE(Release(Container(1)).ok());
  EXPECT_EQ(ledger_->ChosenFor(Uid("uid-1")), nullptr);
  Restart();
  EXPECT_EQ(ledger_->ChosenFor(Uid("uid-1")), nullptr);
}

TEST_F(GrantLedgerTest, JournalOfAgentsThatKnewWholeGpusOnlyIsRead) {
  const std::string one = grant::NonceText(NewNonce(now_)), two = grant::NonceText(NewNonce(now_));
  const auto bind = [](const std::string& nonce, const std::string& gpu, const std::string& pod) {
    return R"({"do":"bind","nonce":")" + nonce + R"(","resource":"nvidia.com/gpu","ids":[")" + gpu +
           R"("],"uid":"uid-)" + pod + R"(","namespace":"default","pod":"pod-)" + pod +
           R"(","container":"main"})";
  };
  log_.records = {bind(one, "GPU-1", "1"), bind(two, "GPU-2", "2"),
                  R"({"do":"spent","nonce":")" + two + R"(","who":"0123456789abcdef"})"};
  Restart();
  ASSERT_EQ(ledger_->entries().size(), 1u);
  EXPECT_EQ(ledger_->spent_count(), 1u);
  EXPECT_FALSE(Bind(Share(NewNonce(now_), "GPU-1", 10, 1, Container(3))).ok());
  EXPECT_TRUE(Bind(*grant::ParseNonce(one), {"GPU-1"}, Container(1)).ok());
  EXPECT_EQ(Bind(*grant::ParseNonce(two), {"GPU-2"}, Container(3)).code(), Code::kPermissionDenied);
}

// Random pods use tokens, replay tokens of others, and end, while the agent crashes at any byte of
// any write. No GPU is ever given twice or oversubscribed, and no answer is ever withdrawn.
class LedgerHistory {
 public:
  explicit LedgerHistory(uint32_t seed) : random_(seed) { Open(); }

  void Step() {
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        return BindEntry(NewEntry());
      case 3:
        return BindAgain();
      case 4:
        return Replay();
      case 5:
      case 6:
        return EndPod();
      default:
        return Open();
    }
  }

  void CheckInvariants() const {
    std::map<std::string, std::pair<int64_t, int64_t>> sums;  // thousandths and bytes
    std::map<std::string, std::set<Uid>> pods, whole;
    for (const auto& [key, entry] : ledger_->entries()) {
      for (const device::DeviceShare& share : entry.shares) {
        sums[share.uuid].first += share.compute.count();
        sums[share.uuid].second += share.memory.count();
        pods[share.uuid].insert(key.first);
        if (share.compute == kWholeGpu) whole[share.uuid].insert(key.first);
      }
    }
    for (const auto& [uuid, sum] : sums) {
      ASSERT_LE(sum.first, 1000) << uuid;
      ASSERT_LE(sum.second, GiB(16).count()) << uuid;
      ASSERT_TRUE(whole[uuid].empty() || pods[uuid].size() == 1) << uuid;
    }
    for (const auto& [nonce, entry] : answered_) {
      const GrantLedger::Entry* found = ledger_->Find(entry.holder);
      ASSERT_NE(found, nullptr) << "an answer was forgotten";
      ASSERT_EQ(*found, entry);
    }
  }

 private:
  using Entry = GrantLedger::Entry;

  void Open() {
    ledger_.reset();
    journal_.reset();
    auto dir = DirFd::Open(dir_.path());
    grant::Journal::Recovery recovery;
    auto journal = grant::Journal::Open(std::move(*dir), "j", &recovery);
    ASSERT_TRUE(journal.ok());
    ASSERT_TRUE(recovery.damage.empty()) << recovery.damage;
    journal_.emplace(std::move(*journal));
    size_t skipped = 0;
    ledger_.emplace(&*journal_, recovery.records, &skipped);
    ASSERT_EQ(skipped, 0u);
  }

  Entry NewEntry() {
    ContainerRef holder = Container(next_pod_++ % 50);
    holder.pod_uid = Uid(fmt::format("{}-{}", holder.pod_uid, next_pod_));
    const grant::Nonce nonce = NewNonce(kStart);
    if (random_() % 2 == 0) {
      return Share(nonce, "GPU-" + std::to_string(random_() % 8),
                   static_cast<int>(random_() % 1000), 1 + static_cast<int>(random_() % 16),
                   holder);
    }
    std::set<std::string> ids;
    const int count = 1 + static_cast<int>(random_() % 3);
    for (int i = 0; i < count; ++i) ids.insert("GPU-" + std::to_string(random_() % 8));
    return Whole(nonce, {ids.begin(), ids.end()}, holder);
  }

  // Binds the entry. The agent may crash while it writes the record.
  void BindEntry(const Entry& entry) {
    const uint64_t before = journal_->size();
    const Status status = ledger_->Bind(entry, nullptr, Gpus(), kStart);
    const uint64_t after = journal_->size();
    if (after > before && random_() % 3 == 0) {
      const uint64_t torn = before + random_() % (after - before);
      ASSERT_EQ(::truncate((dir_.path() + "/j").c_str(), static_cast<off_t>(torn)), 0);
      return Open();  // no caller was answered
    }
    if (status.ok()) answered_[entry.claims[0].nonce] = entry;
  }

  const Entry* AnyAnswered() {
    if (answered_.empty()) return nullptr;
    return &std::next(answered_.begin(), static_cast<long>(random_() % answered_.size()))->second;
  }

  void BindAgain() {
    if (const Entry* entry = AnyAnswered()) {
      ASSERT_TRUE(ledger_->Bind(*entry, nullptr, Gpus(), kStart).ok());
    }
  }

  void Replay() {
    if (const Entry* entry = AnyAnswered()) {
      Entry thief = *entry;
      thief.holder = NewEntry().holder;
      ASSERT_EQ(ledger_->Bind(thief, nullptr, Gpus(), kStart).code(), Code::kPermissionDenied);
    }
  }

  void EndPod() {
    const Entry* entry = AnyAnswered();
    if (entry == nullptr) return;
    const GrantLedger::Key key = GrantLedger::KeyOf(entry->holder);
    answered_.erase(grant::Nonce(entry->claims[0].nonce));
    const uint64_t before = journal_->size();
    ASSERT_TRUE(ledger_->Release(key).ok());
    if (random_() % 3 == 0) {
      const uint64_t torn = before + random_() % (journal_->size() - before);
      ASSERT_EQ(::truncate((dir_.path() + "/j").c_str(), static_cast<off_t>(torn)), 0);
      Open();  // the release is lost, and repeated at the next conflict
    }
    if (random_() % 10 == 0) {
      ASSERT_TRUE(ledger_->Tidy(kStart).ok());
    }
  }

  std::mt19937 random_;
  TempDir dir_;
  std::optional<grant::Journal> journal_;
  std::optional<GrantLedger> ledger_;
  std::map<grant::Nonce, Entry> answered_;
  int next_pod_ = 0;
};

TEST(GrantLedgerPropertyTest, OversubscribesNoGpuAndLosesNoAnswerInCrashes) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    LedgerHistory history(seed);
    for (int step = 0; step < 150; ++step) {
      history.Step();
      history.CheckInvariants();
      if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace tessera::agent
