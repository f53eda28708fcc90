// SPDX-License-Identifier: Apache-2.0
#include "src/base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera {
namespace {

// Set once before threads start, or by a test.
LogOptions options;
std::function<void(std::string_view)> sink_for_test;

constexpr std::array<char, 4> kSeverityLetters = {'D', 'I', 'W', 'E'};
constexpr std::array<std::string_view, 4> kSeverityNames = {"debug", "info", "warning", "error"};

void AppendTextValue(std::string_view value, std::string* out) {
  const bool plain = !value.empty() && value.find_first_of(" \t\n\"=") == std::string_view::npos;
  if (plain) {
    out->append(value);
  } else {
    AppendJsonString(value, out);
  }
}

std::string Timestamp(LogFormat format) {
  timeval now;
  ::gettimeofday(&now, nullptr);
  tm parts;
  ::gmtime_r(&now.tv_sec, &parts);
  std::array<char, 40> date;
  const char* pattern = format == LogFormat::kJson ? "%Y-%m-%dT%H:%M:%S" : "%m%d %H:%M:%S";
  const size_t length = std::strftime(date.data(), date.size(), pattern, &parts);
  return fmt::format("{}.{:06}{}", std::string_view(date.data(), length), now.tv_usec,
                     format == LogFormat::kJson ? "Z" : "");
}

}  // namespace

void ConfigureLog(LogOptions new_options) { options = new_options; }

std::string FormatLogLine(LogFormat format, Severity severity, std::string_view timestamp,
                          std::string_view message, std::initializer_list<LogField> fields) {
  const auto index = static_cast<size_t>(severity);
  std::string line;
  if (format == LogFormat::kJson) {
    line = fmt::format(R"({{"ts":"{}","level":"{}","msg":)", timestamp, kSeverityNames[index]);
    AppendJsonString(message, &line);
    for (const LogField& field : fields) {
      line += ',';
      AppendJsonString(field.key, &line);
      line += ':';
      AppendJsonString(field.value, &line);
    }
    line += '}';
    return line;
  }
  line = fmt::format("{}{} {}", kSeverityLetters[index], timestamp, message);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    AppendTextValue(field.value, &line);
  }
  return line;
}

void Log(Severity severity, std::string_view message, std::initializer_list<LogField> fields) {
  if (severity < options.min_severity) return;
  std::string line =
      FormatLogLine(options.format, severity, Timestamp(options.format), message, fields);
  if (sink_for_test) return sink_for_test(line);
  line += '\n';
  // A full or closed standard error must not stop the program.
  (void)WriteFd(STDERR_FILENO, line).ok();
}

ScopedLogSinkForTest::ScopedLogSinkForTest(std::function<void(std::string_view)> sink) {
  sink_for_test = std::move(sink);
}
ScopedLogSinkForTest::~ScopedLogSinkForTest() { sink_for_test = nullptr; }

}  // namespace tessera
