// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/ledger_records.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

LedgerRecord SomeGrant() {
  LedgerRecord record;
  record.entry.holder = {Uid("uid"), "ns", "pod", "main"};
  record.entry.claims = {{grant::Nonce{1}, "nvidia.com/gpu", {"GPU-a"}}};
  record.entry.shares = {{"GPU-a", MilliGpu(300), GiB(5)}};
  return record;
}
LedgerRecord SomeSpent() {
  return {.kind = LedgerRecord::Kind::kSpent,
          .nonce = grant::Nonce{2},
          .fingerprint = 0x0123456789abcdef};
}

// Whether the encoded record is still valid after `what` is replaced by `other`.
bool IsValidAfterReplacing(const LedgerRecord& record, const std::string& what,
                           const std::string& other) {
  std::string text = EncodeRecord(record);
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  text.replace(at, what.size(), other);
  return DecodeRecord(text).has_value();
}

TEST(LedgerRecordsTest, DecodingAnEncodedRecordGivesTheSameRecord) {
  const auto granted = DecodeRecord(EncodeRecord(SomeGrant()));
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->entry.shares, SomeGrant().entry.shares);
  EXPECT_EQ(granted->entry.holder.pod_name, "pod");
  const auto spent = DecodeRecord(EncodeRecord(SomeSpent()));
  ASSERT_TRUE(spent.has_value());
  EXPECT_EQ(spent->nonce, SomeSpent().nonce);
  EXPECT_EQ(spent->fingerprint, SomeSpent().fingerprint);
}

TEST(LedgerRecordsTest, AGrantWithAMissingOrMistypedFieldIsInvalid) {
  for (const char* key : {"\"gpu\"", "\"milli\"", "\"bytes\"", "\"nonce\"", "\"ids\"", "\"tokens\"",
                          "\"shares\"", "\"do\""}) {
    EXPECT_FALSE(IsValidAfterReplacing(SomeGrant(), key, "\"other\"")) << key;
  }
  EXPECT_FALSE(IsValidAfterReplacing(SomeGrant(), "\"shares\":[", "\"shares\":{\"list\":["));
  EXPECT_FALSE(IsValidAfterReplacing(
      SomeGrant(), "[{\"gpu\":\"GPU-a\",\"milli\":300,\"bytes\":5368709120}]", "{}"));
  EXPECT_FALSE(IsValidAfterReplacing(
      SomeGrant(), "[{\"gpu\":\"GPU-a\",\"milli\":300,\"bytes\":5368709120}]", "[7]"));
}

TEST(LedgerRecordsTest, ASpentTokenNeedsANonceAndAFingerprintOfSixteenDigits) {
  EXPECT_FALSE(IsValidAfterReplacing(SomeSpent(), "\"nonce\"", "\"other\""));
  EXPECT_FALSE(IsValidAfterReplacing(SomeSpent(), "0123456789abcdef", "0123456789abcd"));
  EXPECT_FALSE(IsValidAfterReplacing(SomeSpent(), "0123456789abcdef", "0123456789abcdefff"));
  EXPECT_FALSE(IsValidAfterReplacing(SomeSpent(), "0123456789abcdef", "0123456789abcdeX"));
}

// The journal of the first release has "bind" for a whole GPU. The journal of the second release
// has grants without the members that later releases write.
TEST(LedgerRecordsTest, RecordsOfEarlierReleasesAreRead) {
  const std::string nonce = grant::NonceText(grant::Nonce{1});
  const auto bind = DecodeRecord(fmt::format(
      R"({{"do":"bind","uid":"u","namespace":"ns","pod":"p","container":"c","nonce":"{}",)"
      R"("ids":["GPU-a"]}})",
      nonce));
  ASSERT_TRUE(bind.has_value());
  EXPECT_EQ(bind->entry.shares, (std::vector<device::DeviceShare>{{"GPU-a", kWholeGpu, {}}}));
  EXPECT_EQ(bind->entry.claims.front().nonce, grant::Nonce{1});
  const auto granted = DecodeRecord(fmt::format(
      R"({{"do":"grant","uid":"u","container":"c","tokens":[{{"nonce":"{}","ids":["x"]}}],)"
      R"("shares":[{{"gpu":"GPU-a","milli":300,"bytes":1024}}]}})",
      nonce));
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->entry.phase, device::Phase::kMain);
  EXPECT_EQ(granted->entry.dialect, device::Dialect::kNvidiaGpu);
  EXPECT_FALSE(granted->entry.guessed);
  EXPECT_FALSE(granted->chosen.has_value());
}

// After a downgrade the journal has records of the later release.
TEST(LedgerRecordsTest, AMemberOfALaterReleaseIsIgnored) {
  EXPECT_TRUE(IsValidAfterReplacing(SomeGrant(), R"("phase":)", R"("later":{"a":[1]},"phase":)"));
}

}  // namespace
}  // namespace tessera::agent
