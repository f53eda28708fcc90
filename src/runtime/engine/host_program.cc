// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/host_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "src/base/file.h"
#include "src/formats/json.h"

namespace tessera::engine {
namespace {

constexpr char kPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::array<std::string_view, 6> kFolders = {
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};

// The child's report to the parent. JSON, because the program's output may contain any bytes.
std::string Encode(const Result<SubprocessResult>& result) {
  Json json = Json::MakeObject();
  if (!result.ok()) {
    json.Set("error", Json::String(result.status().message()));
    json.Set("code", Json::Int(static_cast<int>(result.status().code())));
    return json.Serialize();
  }
  json.Set("exit", Json::Int(result->exit_code));
  json.Set("out", Json::String(result->out));
  json.Set("err", Json::String(result->err));
  return json.Serialize();
}

Result<SubprocessResult> Decode(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (const Json* error = json.Find("error")) {
    ASSIGN_OR_RETURN(const int64_t code, json.IntAt("code"));
    return Status(static_cast<Code>(code), error->string_value());
  }
  SubprocessResult result;
  ASSIGN_OR_RETURN(const int64_t exit_code, json.IntAt("exit"));
  result.exit_code = static_cast<int>(exit_code);
  ASSIGN_OR_RETURN(result.out, json.StringAt("out"));
  ASSIGN_OR_RETURN(result.err, json.StringAt("err"));
  return result;
}

[[noreturn]] void RunInChild(const std::string& root, const std::vector<std::string>& argv,
                             Duration deadline, int report) {
  Result<SubprocessResult> result = SubprocessResult{};
  if (::chroot(root.c_str()) != 0 || ::chdir("/") != 0) {
    result = Status::FromErrno("chroot to " + root, errno);
  } else {
    ::setenv("PATH", kPath, 1);
    result = RunProgram(argv, deadline);
  }
  const Status written = WriteFd(report, Encode(result));
  ::_exit(written.ok() ? 0 : 1);
}

}  // namespace

std::string FindHostProgram(const HostRoot& host, std::string_view name) {
  for (const std::string_view folder : kFolders) {
    const std::string path = JoinPath(folder, name);
    const auto real = host.Resolve(path);
    if (real.ok() && ::access(real->c_str(), X_OK) == 0) return path;
  }
  return "";
}

Result<SubprocessResult> RunOnHost(const HostRoot& host, const std::vector<std::string>& argv,
                                   Duration deadline) {
  if (host.IsMachine()) return RunProgram(argv, deadline);
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno("pipe", errno);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno("fork", errno);
  if (child == 0) RunInChild(host.root(), argv, deadline, write_end.get());
  write_end.Reset();
  const auto report = ReadFd(read_end.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  RETURN_IF_ERROR(report.status());
  return Decode(*report).Annotate(argv[0]);
}

}  // namespace tessera::engine
