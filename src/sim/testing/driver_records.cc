// SPDX-License-Identifier: Apache-2.0
#include "src/sim/testing/driver_records.h"

#include <cstdlib>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::sim::testing {
namespace {

// A driver gives the same answer for its own version and for every version above.
constexpr int kLastVersion = 99990;

using Row = std::vector<std::string>;

std::string Folder() {
  const char* configured = std::getenv("TESSERA_ORACLES");
  return std::string(configured != nullptr ? configured : TESSERA_ORACLES_BESIDE_SOURCE) +
         "/cuda-driver";
}

Result<std::vector<Row>> ReadRows(const std::string& file) {
  auto text = ReadFile(Folder() + "/" + file);
  if (!text.ok()) {
    return Error(text.status().code(), "{}: set TESSERA_ORACLES", text.status().message());
  }
  std::vector<Row> rows;
  for (const std::string_view line : Split(*text, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    Row row;
    for (const std::string_view field : Split(line, '\t')) row.emplace_back(field);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

void PrintTo(const RecordedDriver& driver, std::ostream* out) { *out << driver.version; }

Result<std::vector<std::string>> DriversWithRecordedExports() {
  constexpr std::string_view kPrefix = "libcuda-", kSuffix = ".symbols";
  auto files = ListDir(Folder());
  if (!files.ok()) {
    return Error(files.status().code(), "{}: set TESSERA_ORACLES", files.status().message());
  }
  std::vector<std::string> drivers;
  for (const std::string& file : *files) {
    if (!file.starts_with(kPrefix) || !file.ends_with(kSuffix)) continue;
    drivers.push_back(file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size()));
  }
  return drivers;
}

Result<std::vector<std::string>> RecordedExports(std::string_view library,
                                                 std::string_view driver) {
  ASSIGN_OR_RETURN(const auto rows, ReadRows(fmt::format("{}-{}.symbols", library, driver)));
  std::vector<std::string> exports;
  for (const Row& row : rows) exports.push_back(row[0]);
  return exports;
}

// Fields: name, flags, first version, result/status, symbol. Rows with the same name and flags are
// adjacent.
Result<std::vector<RecordedAddress>> RecordedAddresses(std::string_view driver) {
  ASSIGN_OR_RETURN(const auto rows, ReadRows(fmt::format("getprocaddress-{}.tsv", driver)));
  std::vector<RecordedAddress> answers;
  for (const Row& row : rows) {
    TESSERA_CHECK(row.size() == 5);
    RecordedAddress answer{row[0],
                           unsigned(std::stoi(row[1])),
                           std::stoi(row[2]),
                           kLastVersion,
                           std::stoi(row[3]),
                           std::stoi(row[3].substr(row[3].find('/') + 1)),
                           row[4] == "-" ? "" : row[4]};
    if (!answers.empty()) {
      RecordedAddress& last = answers.back();
      const bool continued = last.name == answer.name && last.flags == answer.flags;
      if (continued) last.last_version = answer.first_version - 1;
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

Result<std::vector<RecordedError>> RecordedCudaErrors(std::string_view driver) {
  ASSIGN_OR_RETURN(const auto rows, ReadRows(fmt::format("cuda-errors-{}.tsv", driver)));
  std::vector<RecordedError> errors;
  for (const Row& row : rows) errors.push_back({std::stoi(row.at(0)), row.at(1), row.at(2)});
  return errors;
}

Result<std::vector<RecordedError>> RecordedNvmlErrors(std::string_view driver) {
  ASSIGN_OR_RETURN(const auto rows, ReadRows(fmt::format("nvml-errors-{}.tsv", driver)));
  std::vector<RecordedError> errors;
  for (const Row& row : rows) errors.push_back({std::stoi(row.at(0)), "", row.at(1)});
  return errors;
}

}  // namespace tessera::sim::testing
