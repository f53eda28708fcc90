// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/base/subprocess.h"
#include "src/cli/sysdump/archive.h"
#include "src/cli/sysdump/redact.h"

namespace tessera::cli {
namespace {

constexpr const char* kUserPod = R"({"metadata":{"name":"train","namespace":"ml",
  "annotations":{"tessera.dev/assignment":"kept","vault/x":"PLANTED-1",
   "kubectl.kubernetes.io/last-applied-configuration":"PLANTED-2"},
  "managedFields":[{"x":"PLANTED-3"}]},
 "spec":{"nodeName":"n1","containers":[{"name":"main","image":"img","command":["sh","PLANTED-4"],
   "args":["--db=PLANTED-5"],"env":[{"name":"HOME","value":"PLANTED-6"}],
   "resources":{"limits":{"nvidia.com/gpu":"1"}}}],"volumes":[{"csi":{"x":"PLANTED-7"}}]},
 "status":{"phase":"Running"}})";

TEST(SysdumpTest, PodsOfUsersKeepOnlyListedFields) {
  const std::string text = ReducedPod(ParseJson(kUserPod).value()).Serialize();
  EXPECT_EQ(text.find("PLANTED"), std::string::npos) << text;
  for (const char* kept :
       {"train", "tessera.dev/assignment", "n1", "img", "nvidia.com/gpu", "Running"}) {
    EXPECT_NE(text.find(kept), std::string::npos) << kept;
  }
}

TEST(SysdumpTest, NodesKeepOnlyFieldsAboutGpus) {
  const std::string text =
      ReducedNode(ParseJson(R"({"metadata":{"name":"n1","annotations":{"tessera.dev/devices":"x",)"
                            R"("cloud/key":"PLANTED"}},"spec":{"providerID":"PLANTED"},)"
                            R"("status":{"capacity":{"nvidia.com/gpu":"8"}}})")
                      .value())
          .Serialize();
  EXPECT_EQ(text.find("PLANTED"), std::string::npos) << text;
  EXPECT_NE(text.find("tessera.dev/devices"), std::string::npos);
}

TEST(SysdumpTest, OwnObjectsLoseValuesWhoseNamesSuggestASecret) {
  const std::string text =
      WithoutSecrets(
          ParseJson(R"({"metadata":{"managedFields":"PLANTED","name":"a"},"spec":{"env":[)"
                    R"({"name":"API_TOKEN","value":"PLANTED"},{"name":"LEVEL","value":"debug"}],)"
                    R"("args":["--token=PLANTED","--level=debug"],"password":"PLANTED"}})")
              .value())
          .Serialize();
  EXPECT_EQ(text.find("PLANTED"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("--level=debug")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("debug")"), std::string::npos) << text;
}

TEST(SysdumpTest, LogsLoseTokensAndKeys) {
  EXPECT_EQ(WithoutTokens("GET x Authorization: Bearer abc.def-1\nnext\n"),
            "GET x Authorization: <omitted>\nnext\n");
  EXPECT_EQ(WithoutTokens("got eyJhbGciOi.eyJpc3M.c2lnbmF0dXJl end"), "got <omitted> end");
  EXPECT_EQ(
      WithoutTokens("a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb\n"),
      "a\n<omitted>\nb\n");
}

TEST(SysdumpTest, TheRealTarReadsTheArchive) {
  TempDir dir;
  const std::string file = JoinPath(dir.path(), "x.tar.gz");
  const std::string longer = "top/" + std::string(60, 'd') + "/" + std::string(60, 'f');
  const auto archive = TarGz({{"top/a.txt", "hello\n"}, {longer, std::string(1000, 'x')}}, 0);
  ASSERT_TRUE(archive.ok());
  ASSERT_TRUE(WriteFileAtomically(file, *archive, 0600).ok());
  const auto list = RunProgram({"tar", "-tzf", file}, std::chrono::seconds(30));
  EXPECT_EQ(list->out, "top/a.txt\n" + longer + "\n") << list->err;
  const auto text = RunProgram({"tar", "-xzOf", file, "top/a.txt"}, std::chrono::seconds(30));
  EXPECT_EQ(text->out, "hello\n");
  EXPECT_EQ(TarGz({{std::string(300, 'x'), ""}}, 0).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(FitsInArchive(longer));
  EXPECT_FALSE(FitsInArchive("tessera-sysdump/pages/" + std::string(140, 'n') + "/metrics.txt"));
}

}  // namespace
}  // namespace tessera::cli
