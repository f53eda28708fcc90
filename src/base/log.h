// SPDX-License-Identifier: Apache-2.0
// Writes one line per event to standard error: a message, then key=value fields.
//   Log(Severity::kInfo, "registered", {{"resource", name}, {"took_ms", "12"}});
//   I1121 11:32:05.123456 registered resource=nvidia.com/gpu took_ms=12
// Threads: any; one write(2) per line, so that lines do not mix. Do not use it in libraries that
// are loaded into foreign programs.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

enum class Severity { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

struct LogField {
  template <typename T>
  LogField(std::string_view k, const T& v) : key(k), value(fmt::format("{}", v)) {}
  std::string_view key;
  std::string value;
};

struct LogOptions {
  Severity min_severity = Severity::kInfo;
  LogFormat format = LogFormat::kText;
};
// Call once, at the start of main.
void ConfigureLog(LogOptions options);

void Log(Severity severity, std::string_view message, std::initializer_list<LogField> fields = {});

// The line that Log would write, without a newline. `timestamp` is the formatted time.
std::string FormatLogLine(LogFormat format, Severity severity, std::string_view timestamp,
                          std::string_view message, std::initializer_list<LogField> fields);

// While the object exists, log lines go to `sink` instead of standard error. For tests; at most one
// object at a time.
class ScopedLogSinkForTest {
 public:
  explicit ScopedLogSinkForTest(std::function<void(std::string_view line)> sink);
  ~ScopedLogSinkForTest();
};

}  // namespace tessera
