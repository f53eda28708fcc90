// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/runtime.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/base/subprocess.h"
#include "src/base/version.h"
#include "src/runtime/command_line.h"
#include "src/runtime/decision.h"
#include "src/runtime/engine/configure.h"
#include "src/runtime/exec_process.h"
#include "src/runtime/explain.h"
#include "src/runtime/options.h"
#include "src/runtime/program_search.h"
#include "src/runtime/update_resources.h"

namespace tessera::runtime {
namespace {

constexpr Duration kVersionTimeout = std::chrono::seconds(10);

std::string ConfigFile() {
  const char* path = ::getenv(names::kEnvRuntimeConfig.data());
  return path != nullptr && *path != '\0' ? path : std::string(names::kRuntimeConfigFile);
}

// Executes `path` with its name as argv[0], the other arguments and the environment. Returns only
// on an error.
Status ExecRuntime(const std::string& path, char** argv) {
  argv[0] = const_cast<char*>(path.c_str());
  ::execv(path.c_str(), argv);
  return Status::FromErrno(path, errno);
}

// Appends a line to a log. Ignores errors.
void AppendLog(const std::string& path, bool json, std::string_view level,
               std::string_view message) {
  // O_APPEND, because runc writes to the same file. O_NOCTTY, because --log may name a terminal.
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!fd.valid()) return;
  (void)WriteFd(fd.get(), LogLine(json, level, message, Rfc3339(SystemClock().WallNow()))).ok();
}

// Reports `status` to the engine, in the file of --log and on standard error, and returns the exit
// code. containerd (getLastRuntimeError in cmd/containerd-shim-runc-v2/process/utils.go) and CRI-O
// show the last error of that file in the pod's Events.
int ReportFailure(const CommandLine& line, const Status& status, const std::string& own_log) {
  const std::string message = "tessera-runtime: " + status.message();
  if (line.log_file != nullptr) AppendLog(line.log_file, line.log_json, "error", message);
  if (!own_log.empty()) AppendLog(own_log, /*json=*/false, "error", message);
  (void)WriteFd(STDERR_FILENO, message + "\n").ok();
  return InfoOf(status.code()).exit_code;
}

Status EditBundle(const CommandLine& line, const Result<Options>& loaded) {
  ASSIGN_OR_RETURN(
      oci::ConfigDocument document,
      oci::ConfigDocument::Load(line.bundle != nullptr ? line.bundle : ".",
                                line.config_file != nullptr ? line.config_file : "config.json"));
  // An invalid configuration fails only containers that request GPUs, so that a pod that repairs
  // the configuration can start.
  if (!loaded.ok()) return RequestsGpus(document) ? loaded.status() : Status::Ok();
  const Options& options = *loaded;
  ASSIGN_OR_RETURN(const Decision decision, Decide(document, options));
  if (!decision.injection) {
    if (decision.denied_gpus.empty()) return Status::Ok();
    RETURN_IF_ERROR(oci::DenyGpus(decision.denied_gpus, &document));
    return document.Save();
  }
  ASSIGN_OR_RETURN(const std::string injection_summary,
                   oci::Inject(*decision.injection, *decision.target, &document));
  RETURN_IF_ERROR(document.Save());
  if (!options.log.empty()) {
    AppendLog(options.log, /*json=*/false, "info",
              fmt::format("{}; {}", decision.reason, injection_summary));
  }
  return Status::Ok();
}

Result<std::string> LowLevelRuntime(const Result<Options>& options) {
  // With an invalid configuration, running containers can still be stopped, probed and deleted.
  static const Options kDefaults;
  return FindLowLevelRuntime(options.ok() ? options->runtimes : kDefaults.runtimes,
                             ::getenv("PATH"));
}

// Prints the version of the low-level runtime, and Tessera's below it. Engines read only the
// low-level runtime's: containerd from the first line (parseVersion in go-runc), Docker from the
// last line with the word "version" (parseRuntimeVersion in daemon/info_unix.go). So Tessera's line
// must not contain that word.
Result<int> ShowVersions(const Result<Options>& options, const char* flag) {
  const std::string own_version = fmt::format("tessera-runtime: {}\n", kTesseraVersion);
  const Result<std::string> path = LowLevelRuntime(options);
  if (!path.ok()) {
    RETURN_IF_ERROR(WriteFd(STDOUT_FILENO, own_version));
    return path.status();
  }
  ASSIGN_OR_RETURN(const SubprocessResult result, RunProgram({*path, flag}, kVersionTimeout));
  RETURN_IF_ERROR(WriteFd(STDERR_FILENO, result.err));
  RETURN_IF_ERROR(WriteFd(STDOUT_FILENO, result.out + own_version));
  return result.exit_code;
}

Status Run(const CommandLine& line, const Result<Options>& options, int argc, char** argv) {
  if (line.creates_container()) {
    RETURN_IF_ERROR(EditBundle(line, options));
  }
  // Best effort: exec into a container must work even if the edit fails.
  if (line.process_file != nullptr) {
    const std::string bundle = BundleOfExec(line.log_file);
    if (IsGpuBundle(bundle)) (void)EditExecProcess(bundle, line.process_file).ok();
  }
  if (line.resources_file != nullptr) {
    // If the document cannot be read, the low-level runtime reports it.
    (void)StripDeviceRules(line.resources_file, argc, argv).ok();
  }
  ASSIGN_OR_RETURN(const std::string path, LowLevelRuntime(options));
  return ExecRuntime(path, argv);
}

constexpr std::string_view kHelp =
    R"(tessera-runtime stands in front of runc or crun: it gives a container its GPUs, then executes that runtime.

Its own commands:
  tessera-runtime configure   makes containerd, Docker or CRI-O use it; see configure --help
  tessera-runtime explain     prints what a container would get, and why; see explain --help
  tessera-runtime --version   adds its own version to that of the low-level runtime

All other commands are commands of the low-level runtime, whose help follows.

)";

bool IsOwnVerb(int argc, char** argv, const char* verb) {
  return argc > 1 && std::strcmp(argv[1], verb) == 0;
}

// If a program reads the help through a pipe, it expects only the low-level runtime's help.
bool WantsOwnHelp(int argc, char** argv) {
  if (argc != 2) return false;
  if (IsOwnVerb(argc, argv, "help")) return true;
  const bool requests_help = IsOwnVerb(argc, argv, "--help") || IsOwnVerb(argc, argv, "-h");
  return requests_help && ::isatty(STDOUT_FILENO) == 1;
}

}  // namespace

int RuntimeMain(int argc, char** argv) {
  if (WantsOwnHelp(argc, argv)) (void)WriteFd(STDOUT_FILENO, kHelp).ok();
  static char help_option[] = "--help";
  if (argc == 2 && IsOwnVerb(argc, argv, "help")) argv[1] = help_option;  // crun has no verb "help"
  if (IsOwnVerb(argc, argv, "configure")) return engine::ConfigureMain(argc - 1, argv + 1);
  const Result<Options> options = LoadOptions(ConfigFile());
  if (IsOwnVerb(argc, argv, "explain")) return ExplainMain(argc, argv, options);
  const CommandLine line = ParseCommandLine(argc, argv);
  if (argc == 2 && IsOwnVerb(argc, argv, "--version")) {
    const Result<int> shown = ShowVersions(options, argv[1]);
    return shown.ok() ? *shown : ReportFailure(line, shown.status(), "");
  }
  const Status status = Run(line, options, argc, argv);
  return ReportFailure(line, status, options.ok() ? options->log : std::string());
}

Result<std::string> FindLowLevelRuntime(const std::vector<std::string>& names,
                                        const char* path_variable) {
  std::string tried;
  for (const std::string& name : names) {
    tried += (tried.empty() ? "" : ", ") + name;
    if (name.starts_with('/')) {
      if (IsOtherProgram(name.c_str())) return name;
      continue;
    }
    for (const std::string_view dirs :
         {std::string_view(path_variable != nullptr ? path_variable : ""), kUsualDirs}) {
      ProgramPath path;
      if (FindProgram(dirs, name, path)) return std::string(path);
    }
  }
  return Error(Code::kNotFound,
               "no low-level runtime found: tried {} in PATH and {}; install runc or crun, or name "
               "one in \"runtimes\" of the configuration",
               tried, kUsualDirs);
}

std::string LogLine(bool json, std::string_view level, std::string_view message,
                    std::string_view timestamp) {
  std::string quoted;
  AppendJsonString(message, &quoted);
  if (!json) return fmt::format("time=\"{}\" level={} msg={}\n", timestamp, level, quoted);
  return fmt::format("{{\"level\":\"{}\",\"msg\":{},\"time\":\"{}\"}}\n", level, quoted, timestamp);
}

}  // namespace tessera::runtime
