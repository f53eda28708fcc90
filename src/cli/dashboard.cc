// SPDX-License-Identifier: Apache-2.0
#include "src/cli/dashboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/cli/options.h"
#include "src/cli/session.h"
#include "src/cli/verbs.h"

namespace tessera::cli {
namespace {

constexpr const char* kConsole = "tessera-console";

// Replaces this process by tessera-console. Returns only on an error.
Status RunDashboard(const DashboardOptions& options) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const char* search_path = ::getenv("PATH");
  ASSIGN_OR_RETURN(
      const std::string program,
      FindConsole(self.parent_path().string(), search_path == nullptr ? "" : search_path));
  std::vector<std::string> arguments = DashboardArguments(options, ::getenv);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return Status::FromErrno(program, errno);
}

}  // namespace

std::vector<std::string> DashboardArguments(const DashboardOptions& options,
                                            const kube::GetEnv& getenv) {
  std::vector<std::string> arguments = {"--dashboard",
                                        fmt::format("--listen=127.0.0.1:{}", options.port)};
  // tessera-console itself has no default for --kubeconfig, because in a pod it uses the service
  // account.
  const std::string kubeconfig = FindKubeconfig(options.kubeconfig, getenv).paths;
  if (!kubeconfig.empty()) arguments.push_back("--kubeconfig=" + kubeconfig);
  if (!options.context.empty()) arguments.push_back("--context=" + options.context);
  return arguments;
}

Result<std::string> FindConsole(const std::string& own_directory, const std::string& search_path) {
  std::vector<std::string> directories = {own_directory};
  for (const std::string_view directory : SplitList(search_path, ':'))
    directories.emplace_back(directory);
  for (const std::string& directory : directories) {
    const std::string program = JoinPath(directory, kConsole);
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return Error(Code::kNotFound, "{} is not in {} and not in $PATH: install it beside tessera",
               kConsole, own_directory);
}

Action AddDashboard(CLI::App* app) {
  auto options = std::make_shared<DashboardOptions>();
  app->add_option("--port", options->port, "on 127.0.0.1; 0: any")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--kubeconfig", options->kubeconfig,
                  "kubeconfig file; default: $KUBECONFIG, else ~/.kube/config");
  app->add_option("--context", options->context, "context of the kubeconfig");
  app->footer(
      "Prints a secret address; only browsers that open it have access. Runs until Ctrl+C.");
  return [options] { return Fail(RunDashboard(*options)); };
}

}  // namespace tessera::cli
