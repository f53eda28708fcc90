// SPDX-License-Identifier: Apache-2.0
#include "src/cli/command_line.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "src/cli/ledger_command.h"

namespace tessera::cli {
namespace {

LedgerCommandOptions Parsed(LedgerVerb verb, const std::string& words) {
  CLI::App app;
  LedgerCommandOptions options;
  options.verb = verb;
  AddLedgerOptions(&app, &options);
  EXPECT_NO_THROW(app.parse(words)) << words;
  return options;
}

struct Outcome {
  std::optional<int> code;
  std::string out, err;
  bool runs = false;
};

Outcome Parse(std::vector<const char*> words) {
  Outcome outcome;
  Action action;
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  outcome.code = ParseCommandLine(static_cast<int>(words.size()), words.data(), &action);
  outcome.err = ::testing::internal::GetCapturedStderr();
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.runs = action != nullptr;
  return outcome;
}

TEST(CommandLineTest, VerbsAcceptTheirOptions) {
  const LedgerCommandOptions pods = Parsed(LedgerVerb::kPods, "-A -o wide -l app=web --no-headers");
  EXPECT_TRUE(pods.ns.all_namespaces);
  EXPECT_EQ(pods.style.output, "wide");
  EXPECT_EQ(pods.selector, "app=web");
  EXPECT_TRUE(pods.style.no_headers);
  const LedgerCommandOptions explain = Parsed(LedgerVerb::kExplain, "nginx -n ml -ojson");
  EXPECT_EQ(explain.pod, "nginx");
  EXPECT_EQ(explain.ns.Resolve("default"), "ml");
  EXPECT_EQ(explain.style.output, "json");
  EXPECT_EQ(Parsed(LedgerVerb::kGpus, "n1").node, "n1");
}

TEST(CommandLineTest, EachVerbHasTheVersionOfTheProgram) {
  const Outcome own = Parse({"tessera", "--version"});
  EXPECT_EQ(own.code, 0);
  for (const char* verb : {"explain", "status", "pod", "version"}) {
    const Outcome outcome = Parse({"tessera", verb, "--version"});
    EXPECT_EQ(outcome.code, 0) << verb << outcome.err;
    EXPECT_EQ(outcome.out, own.out) << verb;
  }
}

TEST(CommandLineTest, KindsAreSingularOrPlural) {
  for (const auto& [word, verb] :
       {std::pair("pod", "pods"), std::pair("pods", "pods"), std::pair("node", "nodes"),
        std::pair("nodes", "nodes"), std::pair("gpu", "gpus"), std::pair("quotas", "quota")}) {
    const Outcome help = Parse({"tessera", word, "--help"});
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_NE(help.out.find(fmt::format("tessera {} [OPTIONS]", verb)), std::string::npos)
        << help.out;
  }
  EXPECT_TRUE(Parse({"kubectl-tessera", "pod", "nginx"}).runs);
  EXPECT_EQ(Parse({"tessera", "podz"}).code, 64);
}

TEST(CommandLineTest, PodsAndNodesAreNamedAsForKubectl) {
  EXPECT_EQ(Parsed(LedgerVerb::kPods, "a b -n ml").names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Parsed(LedgerVerb::kNodes, "node/n1").names, (std::vector<std::string>{"node/n1"}));
  const auto error_of = [](LedgerVerb verb, const std::string& words) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(RunLedgerCommand(Parsed(verb, words)), 64);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string rest = " with the name x: use either of them\n";
  EXPECT_EQ(error_of(LedgerVerb::kPods, "x -A"), "tessera: -A" + rest);
  EXPECT_EQ(error_of(LedgerVerb::kPods, "x -l a=b"), "tessera: -l" + rest);
  EXPECT_EQ(error_of(LedgerVerb::kNodes, "x --field-selector metadata.name=x"),
            "tessera: --field-selector" + rest);
}

TEST(CommandLineTest, InvalidLimitsAreRejectedBeforeTheKubeconfigIsRead) {
  LedgerCommandOptions limit = Parsed(LedgerVerb::kLimit, "nginx --kubeconfig /nonexistent");
  const auto error_of = [&limit](const char* memory, const char* compute) {
    limit.limits = {memory, compute};
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(RunLedgerCommand(limit), 64);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(error_of("8 Gi", "").find("--memory: \"8 Gi\""), std::string::npos);
  EXPECT_NE(error_of("4Gi", "0").find("--compute: \"0\""), std::string::npos);
  EXPECT_NE(error_of("", "").find("want an amount"), std::string::npos);
}

TEST(CommandLineTest, ImpersonatesLikeKubectl) {
  const LedgerCommandOptions nodes =
      Parsed(LedgerVerb::kNodes, "--as ann --as-group a --as-group b --context c");
  EXPECT_EQ(nodes.cluster.as, "ann");
  EXPECT_EQ(nodes.cluster.as_groups, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(nodes.cluster.context, "c");
  EXPECT_EQ(ConfigOf({.as_groups = {"a"}}).status().message(),
            "--as-group and --as-uid need a user: --as USER");
}

TEST(CommandLineTest, NamespacesFollowTheContext) {
  EXPECT_EQ(NamespaceOptions().Resolve("ctx"), "ctx");
  EXPECT_EQ((NamespaceOptions{"a", false}).Resolve("ctx"), "a");
  EXPECT_EQ((NamespaceOptions{"a", true}).Resolve("ctx"), "");
}

TEST(CommandLineTest, EachVerbParsesAndIsUnique) {
  std::set<std::string> names;
  for (const Verb& verb : Verbs()) {
    EXPECT_TRUE(names.insert(verb.name).second) << verb.name;
    const Outcome help = Parse({"tessera", verb.name, "--help"});
    EXPECT_EQ(help.code, 0) << verb.name << help.err;
    EXPECT_NE(help.out.find("Usage: "), std::string::npos) << verb.name;
  }
  EXPECT_TRUE(Parse({"tessera", "gpus", "n1"}).runs);
  EXPECT_TRUE(Parse({"/opt/bin/kubectl-tessera", "pods", "-A"}).runs);
}

TEST(CommandLineTest, ProgramNameSelectsGpusharesPlugin) {
  EXPECT_TRUE(Parse({"/usr/bin/kubectl-inspect-gpushare", "-d", "n1"}).runs);
  EXPECT_TRUE(Parse({"tessera", "inspect-gpushare", "-d"}).runs);
  EXPECT_EQ(Parse({"kubectl-inspect-gpushare", "nodes", "n1"}).code, 64);
}

TEST(CommandLineTest, UsageErrorsHaveSysexitsCodes) {
  EXPECT_EQ(Parse({"tessera"}).code, 64);
  EXPECT_EQ(Parse({"tessera", "gpsu"}).code, 64);
  EXPECT_EQ(Parse({"tessera", "nodes", "--colour"}).code, 64);
  EXPECT_EQ(Parse({"tessera", "explain"}).code, 64);
  EXPECT_EQ(Parse({"tessera", "sysdump", "--max-size=4096"}).code, 64);
  EXPECT_EQ(Parse({"tessera", "--help"}).code, 0);
  EXPECT_EQ(Parse({"tessera", "--version"}).code, 0);
}

}  // namespace
}  // namespace tessera::cli
