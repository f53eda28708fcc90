// SPDX-License-Identifier: Apache-2.0
// For tests: runs a command line of `tessera` against a fake API server, in this process.
//
// Threads: the command has a thread of its own; the server answers on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/cli/command_line.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::cli::testing {

struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class CommandFixture : public ::testing::Test {
 protected:
  // `words`: the command line without the program's name. The command uses the server's kubeconfig.
  CommandResult Run(const std::vector<std::string>& words) {
    const std::string kubeconfig = JoinPath(dir_.path(), "kubeconfig");
    EXPECT_TRUE(WriteFileAtomically(kubeconfig, server_.Kubeconfig(), 0600).ok());
    std::vector<const char*> argv{"tessera"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    argv.push_back("--kubeconfig");
    argv.push_back(kubeconfig.c_str());
    CommandResult result;
    std::atomic<bool> ended = false;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    std::thread command([&] {
      Action action;
      const auto code = ParseCommandLine(static_cast<int>(argv.size()), argv.data(), &action);
      result.exit_code = code ? *code : action();
      std::fflush(stdout);
      ended = true;
    });
    EXPECT_TRUE(runner_.RunUntil([&] { return ended.load(); }, std::chrono::seconds(60)));
    command.join();
    result.out = ::testing::internal::GetCapturedStdout();
    result.err = ::testing::internal::GetCapturedStderr();
    return result;
  }

  TempDir dir_;
  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
};

}  // namespace tessera::cli::testing
