// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grant_ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <set>

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

constexpr const char* kGpu = "nvidia.com/gpu";
const WallTime kStart = WallTime(1'700'000'000s);

grant::Nonce NewNonce(WallTime made) {
  static const grant::TokenSealer sealer(std::string(32, 'k'));
  return sealer.Open(kGpu, sealer.Seal(kGpu, {"x"}, made))->nonce;
}

ContainerRef Container(int pod, const std::string& name = "main") {
  return {"uid-" + std::to_string(pod), "default", "pod-" + std::to_string(pod), name};
}

class MemoryLog : public grant::RecordLog {
 public:
  Status Append(std::string_view record) override {
    if (full) return Status(Code::kResourceExhausted, "No space left on device");
    records.emplace_back(record);
    return Status::Ok();
  }
  Status Replace(const std::vector<std::string>& all) override {
    if (full) return Status(Code::kResourceExhausted, "No space left on device");
    records = all;
    ++replaced;
    return Status::Ok();
  }
  std::vector<std::string> records;
  bool full = false;
  int replaced = 0;
};

class GrantLedgerTest : public testing::Test {
 protected:
  Status Bind(const grant::Nonce& nonce, std::vector<std::string> ids, const ContainerRef& who) {
    return ledger_->Bind(nonce, kGpu, ids, who, now_);
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

TEST_F(GrantLedgerTest, SameQuestionIsOkAgainAndWritesOnce) {
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
  ASSERT_TRUE(ledger_->Release(nonce).ok());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Bind(nonce, {"GPU-1"}, Container(2)).code(), Code::kPermissionDenied);
    Restart();
  }
}

TEST_F(GrantLedgerTest, PodThatWasTakenForGoneMayComeBack) {
  const grant::Nonce nonce = NewNonce(now_);
  ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  ASSERT_TRUE(ledger_->Release(nonce).ok());
  EXPECT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  Restart();
  EXPECT_EQ(ledger_->entries().size(), 1u);
}

TEST_F(GrantLedgerTest, DeviceOfALivePodIsRefused) {
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

TEST_F(GrantLedgerTest, FullDiskTakesNothingAndHealsLater) {
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

TEST_F(GrantLedgerTest, UnusedTokenGetsTooOld) {
  const grant::Nonce nonce = NewNonce(now_);
  const grant::Nonce used = NewNonce(now_);
  ASSERT_TRUE(Bind(used, {"GPU-1"}, Container(1)).ok());
  now_ += GrantLedger::kTokenLifetime + 1s;
  EXPECT_EQ(Bind(nonce, {"GPU-2"}, Container(2)).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Bind(used, {"GPU-1"}, Container(1)).ok()) << "a used one does not";
}

TEST_F(GrantLedgerTest, SpentTokensAreForgottenOnlyWhenTheyAreTooOldToBeBelieved) {
  const grant::Nonce nonce = NewNonce(now_);
  ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(1)).ok());
  ASSERT_TRUE(ledger_->Release(nonce).ok());
  now_ += GrantLedger::kTokenLifetime - 1s;
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(ledger_->spent(), 1u);
  now_ += 2s;
  ASSERT_TRUE(ledger_->Tidy(now_).ok());
  EXPECT_EQ(ledger_->spent(), 0u);
  EXPECT_EQ(Bind(nonce, {"GPU-1"}, Container(2)).code(), Code::kFailedPrecondition);
}

TEST_F(GrantLedgerTest, HistoryIsTidiedAway) {
  for (int i = 0; i < 1000; ++i) {
    const grant::Nonce nonce = NewNonce(now_);
    ASSERT_TRUE(Bind(nonce, {"GPU-1"}, Container(i)).ok());
    ASSERT_TRUE(ledger_->Release(nonce).ok());
    now_ += 1h;
    ASSERT_TRUE(ledger_->Tidy(now_).ok());
  }
  EXPECT_LT(log_.records.size(), 700u);
  EXPECT_GT(log_.replaced, 0);
  Restart();
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(GrantLedgerTest, SenselessRecordsAreSkippedAndCounted) {
  ASSERT_TRUE(Bind(NewNonce(now_), {"GPU-1"}, Container(1)).ok());
  log_.records.insert(log_.records.begin(), {"", "{}", "[1]", R"({"do":"bind"})",
                                             R"({"do":"dance","nonce":"00"})", "\xff"});
  ledger_.emplace(&log_, log_.records, &skipped_);
  EXPECT_EQ(skipped_, 6u);
  EXPECT_EQ(ledger_->entries().size(), 1u);
}

// Random pods come, show tokens, replay those of others, and go, while the agent crashes at any
// byte of any write. Whatever happens: no device is in two live pods, and an answer once given
// stands.
class LedgerHistory {
 public:
  explicit LedgerHistory(uint32_t seed) : random_(seed) { Open(); }

  void Step() {
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        return Show(NewToken());
      case 3:
        return ShowAgain();
      case 4:
        return Replay();
      case 5:
      case 6:
        return EndPod();
      default:
        return Open();
    }
  }

  void CheckConservation() const {
    std::map<std::string, std::string> owner;
    for (const auto& [nonce, entry] : ledger_->entries()) {
      for (const std::string& id : entry.ids) {
        const auto [at, fresh] = owner.emplace(id, entry.holder.pod_uid);
        ASSERT_TRUE(fresh || at->second == entry.holder.pod_uid)
            << id << " is in " << at->second << " and " << entry.holder.pod_uid;
      }
    }
    for (const auto& [nonce, token] : answered_) {
      const auto found = ledger_->entries().find(nonce);
      ASSERT_TRUE(found != ledger_->entries().end()) << "an answer was forgotten";
      ASSERT_EQ(found->second.holder, token.who);
      ASSERT_EQ(found->second.ids, token.ids);
    }
  }

 private:
  struct Token {
    grant::Nonce nonce;
    std::vector<std::string> ids;
    ContainerRef who;
  };

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

  Token NewToken() {
    Token token{NewNonce(kStart), {}, Container(next_pod_++ % 50)};
    token.who.pod_uid += "-" + std::to_string(next_pod_);
    std::set<std::string> ids;
    const int count = 1 + static_cast<int>(random_() % 3);
    for (int i = 0; i < count; ++i) ids.insert("GPU-" + std::to_string(random_() % 8));
    token.ids.assign(ids.begin(), ids.end());
    return token;
  }

  // One binding, and perhaps a crash in the middle of writing it.
  void Show(const Token& token) {
    const uint64_t before = journal_->size();
    const Status status = ledger_->Bind(token.nonce, kGpu, token.ids, token.who, kStart);
    const uint64_t after = journal_->size();
    if (after > before && random_() % 3 == 0) {
      const uint64_t torn = before + random_() % (after - before);
      ASSERT_EQ(::truncate((dir_.path() + "/j").c_str(), static_cast<off_t>(torn)), 0);
      return Open();  // nobody was answered
    }
    if (status.ok()) answered_[token.nonce] = token;
  }

  const Token* AnyAnswered() {
    if (answered_.empty()) return nullptr;
    return &std::next(answered_.begin(), static_cast<long>(random_() % answered_.size()))->second;
  }

  void ShowAgain() {
    if (const Token* token = AnyAnswered()) {
      ASSERT_TRUE(ledger_->Bind(token->nonce, kGpu, token->ids, token->who, kStart).ok());
    }
  }

  void Replay() {
    if (const Token* token = AnyAnswered()) {
      const Token thief = NewToken();
      ASSERT_EQ(ledger_->Bind(token->nonce, kGpu, token->ids, thief.who, kStart).code(),
                Code::kPermissionDenied);
    }
  }

  void EndPod() {
    const Token* token = AnyAnswered();
    if (token == nullptr) return;
    const grant::Nonce nonce = token->nonce;
    answered_.erase(nonce);
    const uint64_t before = journal_->size();
    ASSERT_TRUE(ledger_->Release(nonce).ok());
    if (random_() % 3 == 0) {
      const uint64_t torn = before + random_() % (journal_->size() - before);
      ASSERT_EQ(::truncate((dir_.path() + "/j").c_str(), static_cast<off_t>(torn)), 0);
      Open();  // the release is forgotten; it comes again with the next conflict
    }
    if (random_() % 10 == 0) {
      ASSERT_TRUE(ledger_->Tidy(kStart).ok());
    }
  }

  std::mt19937 random_;
  TempDir dir_;
  std::optional<grant::Journal> journal_;
  std::optional<GrantLedger> ledger_;
  std::map<grant::Nonce, Token> answered_;
  int next_pod_ = 0;
};

TEST(GrantLedgerPropertyTest, ConservesDevicesAndAnswersOverCrashes) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    LedgerHistory history(seed);
    for (int step = 0; step < 150; ++step) {
      history.Step();
      history.CheckConservation();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace tessera::agent
