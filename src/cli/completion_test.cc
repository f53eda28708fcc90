// SPDX-License-Identifier: Apache-2.0
#include "src/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/base/file.h"
#include "src/base/subprocess.h"

namespace tessera::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

TEST(CompletionTest, OffersVerbsOptionsAndValues) {
  EXPECT_THAT(Complete({"gp"}), ElementsAre("gpus"));
  EXPECT_THAT(Complete({""}), Contains("doctor"));
  EXPECT_THAT(Complete({"pods", "--sor"}), ElementsAre("--sort-by"));
  EXPECT_THAT(Complete({"pods", "-o", "j"}), ElementsAre("json", "jsonpath="));
  EXPECT_THAT(Complete({"pods", "--output=ya"}), ElementsAre("--output=yaml"));
  EXPECT_THAT(Complete({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(Complete({"nodes", "-A", ""}), ElementsAre());
}

TEST(CompletionTest, OffersContextsOfTheKubeconfig) {
  TempDir dir;
  const std::string file = JoinPath(dir.path(), "config");
  ASSERT_TRUE(WriteFileAtomically(file, "contexts: [{name: blue}, {name: green}]\n", 0600).ok());
  EXPECT_THAT(Complete({"nodes", "--kubeconfig", file, "--context", ""}),
              ElementsAre("blue", "green"));
  const std::string second = JoinPath(dir.path(), "second");
  ASSERT_TRUE(WriteFileAtomically(second, "contexts: [{name: red}]\n", 0600).ok());
  ::setenv("KUBECONFIG", (file + ":" + second).c_str(), /*overwrite=*/1);
  EXPECT_THAT(Complete({"nodes", "--context", ""}), ElementsAre("blue", "green", "red"));
  ::unsetenv("KUBECONFIG");
}

// The candidates that the real bash offers for the word at index `cursor_word`.
std::string CandidatesInBash(const std::string& words, int cursor_word) {
  const std::string script = fmt::format(
      "set -eu; PATH={}:$PATH; source <(tessera completion bash)\n"
      "COMP_WORDS=({}); COMP_CWORD={}; _tessera; echo \"${{COMPREPLY[@]}}\"; complete -p tessera",
      DirName(TESSERA_PROGRAM), words, cursor_word);
  const auto result = RunProgram({"bash", "--norc", "-c", script}, std::chrono::seconds(30));
  EXPECT_TRUE(result.ok() && result->exit_code == 0) << result->err;
  return result->out;
}

TEST(CompletionTest, TheRealBashOffersTheSame) {
  EXPECT_EQ(CandidatesInBash("tessera gp", 1), "gpus\ncomplete -F _tessera tessera\n");
  EXPECT_EQ(CandidatesInBash("tessera pods -o w", 3), "wide\ncomplete -F _tessera tessera\n");
  EXPECT_EQ(CandidatesInBash("tessera completion ''", 2),
            "bash zsh fish\ncomplete -F _tessera tessera\n");
}

TEST(CompletionTest, KubectlGetsCompletionsInItsOwnFormat) {
  const std::string plugin = JoinPath(DirName(TESSERA_PROGRAM), "kubectl_complete-tessera");
  const auto result = RunProgram({plugin, "gp"}, std::chrono::seconds(30));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->out, "gpus\n:4\n");
}

TEST(CompletionTest, ZshAndFishAcceptTheirScripts) {
  std::string missing;
  for (const char* shell : {"zsh", "fish"}) {
    const auto script =
        RunProgram({TESSERA_PROGRAM, "completion", shell}, std::chrono::seconds(30));
    ASSERT_EQ(script->exit_code, 0);
    TempDir dir;
    const std::string file = JoinPath(dir.path(), "script");
    ASSERT_TRUE(WriteFileAtomically(file, script->out, 0600).ok());
    const auto result = RunProgram({shell, "-n", file}, std::chrono::seconds(30));
    if (!result.ok() && result.status().code() == Code::kNotFound) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", shell);
      continue;
    }
    EXPECT_EQ(result->exit_code, 0) << result->err;
  }
  if (!missing.empty()) GTEST_SKIP() << "not installed: " << missing;
}

}  // namespace
}  // namespace tessera::cli
