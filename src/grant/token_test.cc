// SPDX-License-Identifier: Apache-2.0
#include "src/grant/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

namespace tessera::grant {
namespace {

constexpr std::string_view kGpu = "nvidia.com/gpu";
const WallTime kNow = WallTime(std::chrono::seconds(1'700'000'000));

TokenSigner MakeSigner() { return TokenSigner(std::string(32, 'k')); }

TEST(TokenTest, RoundTripsIdsAndTime) {
  const std::string token = MakeSigner().Sign(kGpu, {"GPU-1", "GPU-2"}, kNow);
  EXPECT_EQ(token.substr(0, 3), "v1:");
  const auto content = MakeSigner().Verify(kGpu, token);
  ASSERT_TRUE(content.ok()) << content.status().ToString();
  EXPECT_EQ(content->ids, (std::vector<std::string>{"GPU-1", "GPU-2"}));
  EXPECT_EQ(CreationTime(content->nonce), kNow);
}

TEST(TokenTest, EveryTokenDiffers) {
  std::set<std::string> tokens;
  for (int i = 0; i < 1000; ++i) tokens.insert(MakeSigner().Sign(kGpu, {"GPU-1"}, kNow));
  EXPECT_EQ(tokens.size(), 1000u);
}

TEST(TokenTest, RejectsEveryChangedByte) {
  const TokenSigner signer = MakeSigner();
  const std::string token = signer.Sign(kGpu, {"GPU-1", "GPU-2"}, kNow);
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(signer.Verify(kGpu, changed).ok()) << changed;
  }
}

TEST(TokenTest, HasAtMost1024Ids) {
  std::vector<std::string> ids(1024, "GPU-1");
  EXPECT_EQ(MakeSigner().Verify(kGpu, MakeSigner().Sign(kGpu, ids, kNow))->ids, ids);
  ids.push_back("GPU-1");
  EXPECT_EQ(MakeSigner().Verify(kGpu, MakeSigner().Sign(kGpu, ids, kNow)).status().code(),
            Code::kResourceExhausted);
}

TEST(TokenTest, RejectsAnotherResourceOrKey) {
  const std::string token = MakeSigner().Sign(kGpu, {"GPU-1"}, kNow);
  EXPECT_EQ(MakeSigner().Verify("nvidia.com/mig-1g.5gb", token).status().code(),
            Code::kPermissionDenied);
  EXPECT_EQ(TokenSigner(std::string(32, 'x')).Verify(kGpu, token).status().code(),
            Code::kPermissionDenied);
}

TEST(TokenTest, RejectsInvalidTokens) {
  for (const char* text : {"", "v1", "v1:", "v1::", "v1:::", "v2:00:00:GPU-1", "all", ":::::"}) {
    EXPECT_FALSE(MakeSigner().Verify(kGpu, text).ok()) << text;
  }
}

TEST(TokenTest, ErrorNamesTheRemedy) {
  for (const char* text : {"all", "v1:00:00:GPU-1", "v1:nonsense:00:GPU-1"}) {
    EXPECT_THAT(MakeSigner().Verify(kGpu, text).status().message(),
                ::testing::HasSubstr("remove the variable from the pod"))
        << text;
  }
}

TEST(TokenTest, VariableFollowsTheResource) {
  EXPECT_EQ(TokenVariable(kGpu), "TESSERA_GRANT_NVIDIA_COM_GPU");
  EXPECT_EQ(TokenVariable("nvidia.com/mig-1g.5gb"), "TESSERA_GRANT_NVIDIA_COM_MIG_1G_5GB");
}

TEST(TokenSignerTest, KeepsItsKeyAcrossRestarts) {
  const TempDir dir;
  auto dir_fd = DirFd::Open(dir.path());
  ASSERT_TRUE(dir_fd.ok());
  auto first = TokenSigner::Load(*dir_fd, "token.key");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  auto second = TokenSigner::Load(*dir_fd, "token.key");
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->Verify(kGpu, first->Sign(kGpu, {"GPU-1"}, kNow)).ok());
  struct stat info;
  ASSERT_EQ(::stat((dir.path() + "/token.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(ListDir(dir.path())->size(), 1u);
}

TEST(TokenSignerTest, DoesNotReplaceADamagedKey) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/token.key", "short", 0600).ok());
  auto dir_fd = DirFd::Open(dir.path());
  EXPECT_EQ(TokenSigner::Load(*dir_fd, "token.key").status().code(), Code::kDataLoss);
  EXPECT_EQ(*ReadFile(dir.path() + "/token.key"), "short");
}

}  // namespace
}  // namespace tessera::grant
