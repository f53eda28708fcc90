// SPDX-License-Identifier: Apache-2.0
#include "src/base/parse_flags.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>

#include "src/base/file.h"

namespace tessera {
namespace {

struct Outcome {
  std::optional<int> code;
  std::string out, err;
};

Outcome Parse(CLI::App* app, const char* word) {
  const char* argv[] = {"thing", word};
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome{.code = ParseFlags(app, 2, argv)};
  outcome.err = ::testing::internal::GetCapturedStderr();
  outcome.out = ::testing::internal::GetCapturedStdout();
  return outcome;
}

Outcome Parse(const char* flag) {
  CLI::App app{"Does things.", "thing"};
  app.add_flag("--known");
  return Parse(&app, flag);
}

TEST(ParseFlagsTest, ValidFlagsReturnNoExitCode) { EXPECT_EQ(Parse("--known").code, std::nullopt); }

TEST(ParseFlagsTest, AFlagMayHaveAnEmptyValue) {
  CLI::App app{"Does things.", "thing"};
  std::string text = "default", next;
  app.add_option("--text", text);
  app.add_option("--next", next);
  const char* argv[] = {"thing", "--text=", "--next=a=b"};
  EXPECT_EQ(ParseFlags(&app, 3, argv), std::nullopt);
  EXPECT_EQ(text, "");
  EXPECT_EQ(next, "a=b");
}

TEST(ParseFlagsTest, AShortFlagMayHaveAnEqualsSign) {
  CLI::App app{"Does things.", "thing"};
  std::string output, selector;
  std::vector<std::string> rest;
  app.add_option("-o", output);
  app.add_option("-l", selector);
  app.add_option("rest", rest);
  const char* argv[] = {"thing", "-o=json", "-l=a=b", "--", "-o=x"};
  EXPECT_EQ(ParseFlags(&app, 5, argv), std::nullopt);
  EXPECT_EQ(output, "json");
  EXPECT_EQ(selector, "a=b");
  EXPECT_EQ(rest, std::vector<std::string>{"-o=x"});
}

TEST(ParseFlagsTest, ArgumentsAfterTwoDashesAreNotFlags) {
  CLI::App app{"Does things.", "thing"};
  std::string text;
  std::vector<std::string> rest;
  app.add_option("--text", text);
  app.add_option("rest", rest);
  const char* argv[] = {"thing", "--", "--text=", "--text=a"};
  EXPECT_EQ(ParseFlags(&app, 4, argv), std::nullopt);
  EXPECT_EQ(text, "");
  EXPECT_EQ(rest, (std::vector<std::string>{"--text=", "--text=a"}));
}

TEST(ParseFlagsTest, AnErrorIsReportedOnStandardErrorWithTheUsageCode) {
  const Outcome outcome = Parse("--unknown");
  EXPECT_EQ(outcome.code, 64);
  EXPECT_TRUE(outcome.err.starts_with("thing: ")) << outcome.err;
  EXPECT_NE(outcome.err.find("--unknown"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(ParseFlagsTest, HelpGoesToStandardOutputWithCodeZero) {
  const Outcome outcome = Parse("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("--known"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST(ParseFlagsTest, ErrorForAnUnknownCommandListsTheValidCommands) {
  const auto parse = [](const char* word) {
    CLI::App app{"Does things.", "thing"};
    app.add_subcommand("make", "makes it");
    app.add_subcommand("break", "breaks it");
    app.require_subcommand(1);
    return Parse(&app, word);
  };
  const Outcome wrong = parse("bogus");
  EXPECT_EQ(wrong.code, 64);
  EXPECT_NE(wrong.err.find("unknown command \"bogus\": use one of make, break"), std::string::npos)
      << wrong.err;
  const Outcome help = parse("help");
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("makes it"), std::string::npos) << help.out;
  EXPECT_EQ(parse("make").code, std::nullopt);
  EXPECT_NE(parse("--unknown").err.find("required"), std::string::npos);
}

TEST(ParseFlagsTest, ErrorForAnUnknownSubcommandListsTheValidSubcommands) {
  CLI::App app{"Does things.", "thing"};
  CLI::App* make = app.add_subcommand("make", "makes it");
  make->add_subcommand("tea", "hot");
  make->add_subcommand("coffee", "black");
  for (CLI::App* each : {&app, make}) each->require_subcommand(1);
  app.fallthrough();
  const char* argv[] = {"thing", "make", "teaa", "--cups", "2"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ParseFlags(&app, 5, argv), 64);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "thing: unknown command \"make teaa\": use one of tea, coffee\n"
            "Run with --help for more information.\n");
}

TEST(ParseFlagsTest, AnInvalidOrMissingValueIsReportedWithTheFormOfTheFlag) {
  const auto error_of = [](const char* word) {
    CLI::App app{"Does things.", "thing"};
    bool watch = false;
    std::string memory, name;
    CLI::App* show = app.add_subcommand("show");
    show->add_flag("-w,--watch", watch);
    show->add_option("--memory", memory)->option_text("AMOUNT");
    show->add_option("--name", name);
    const char* argv[] = {"thing", "show", word};
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(ParseFlags(&app, 3, argv), 64);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string help = "\nRun with --help for more information.\n";
  EXPECT_EQ(error_of("--watch=x"),
            "thing: invalid value \"x\" of --watch: want true, false or no value" + help);
  EXPECT_EQ(error_of("--memory"), "thing: --memory has no value: want --memory AMOUNT" + help);
  EXPECT_EQ(error_of("--name"), "thing: --name has no value: want --name TEXT" + help);
}

TEST(ParseFlagsTest, HelpThatCannotBeWrittenIsAnError) {
  CLI::App app{"Does things.", "thing"};
  const char* argv[] = {"thing", "--help"};
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Fd before(::dup(STDOUT_FILENO));
  ASSERT_GE(::dup2(full.get(), STDOUT_FILENO), 0);
  ::testing::internal::CaptureStderr();
  const auto code = ParseFlags(&app, 2, argv);
  ASSERT_GE(::dup2(before.get(), STDOUT_FILENO), 0);
  EXPECT_EQ(code, 75);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("No space left"), std::string::npos);
}

}  // namespace
}  // namespace tessera
