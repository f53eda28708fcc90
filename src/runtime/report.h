// SPDX-License-Identifier: Apache-2.0
// Reports an error to the engine: in the file of --log, in the format of --log-format, and on
// standard error. containerd and CRI-O show the last error of that file in the pod's Events.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/runtime/command_line.h"

namespace tessera::runtime {

// One line in runc's log format; `stamp` is in RFC 3339.
std::string LogLine(bool json, std::string_view level, std::string_view message,
                    std::string_view stamp);

// Appends a line to the log. Ignores errors.
void AppendLog(const std::string& path, bool json, std::string_view level,
               std::string_view message);

// Reports `status` and returns the exit code.
int ReportFailure(const CommandLine& line, const Status& status, const std::string& own_log);

}  // namespace tessera::runtime
