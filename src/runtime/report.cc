// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/report.h"

#include <fcntl.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::runtime {

std::string LogLine(bool json, std::string_view level, std::string_view message,
                    std::string_view stamp) {
  std::string quoted;
  AppendJsonString(message, &quoted);
  if (!json) return fmt::format("time=\"{}\" level={} msg={}\n", stamp, level, quoted);
  return fmt::format("{{\"level\":\"{}\",\"msg\":{},\"time\":\"{}\"}}\n", level, quoted, stamp);
}

void AppendLog(const std::string& path, bool json, std::string_view level,
               std::string_view message) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!fd.valid()) return;
  (void)WriteFd(fd.get(), LogLine(json, level, message, Rfc3339(SystemClock().WallNow()))).ok();
}

int ReportFailure(const CommandLine& line, const Status& status, const std::string& own_log) {
  const std::string message = "tessera-runtime: " + status.message();
  if (line.log != nullptr) AppendLog(line.log, line.log_json, "error", message);
  if (!own_log.empty()) AppendLog(own_log, false, "error", message);
  (void)WriteFd(STDERR_FILENO, message + "\n").ok();
  return InfoOf(status.code()).exit_code;
}

}  // namespace tessera::runtime
