// SPDX-License-Identifier: Apache-2.0
// Tells an engine what went wrong where it looks: the file of --log, in the format of --log-format,
// and standard error. containerd and CRI-O show the last error of that file in the pod's events.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/runtime/command_line.h"

namespace tessera::runtime {

// One line as runc logs it; `stamp` in RFC 3339.
std::string LogLine(bool json, std::string_view level, std::string_view message,
                    std::string_view stamp);

// Appends a line; a log that cannot be written is no reason to fail.
void AppendLog(const std::string& path, bool json, std::string_view level,
               std::string_view message);

// Gives the exit code.
int ReportFailure(const CommandLine& line, const Status& status, const std::string& own_log);

}  // namespace tessera::runtime
