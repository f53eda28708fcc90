// SPDX-License-Identifier: Apache-2.0
// Compares the libraries of a node with the recorded answers of the driver that its profile names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "api/nvml_abi.h"
#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/driver_records.h"
#include "src/sim/testing/elf_file.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

using sim::testing::RecordedAddress;
using sim::testing::RecordedDriver;
using ::testing::IsEmpty;
using ::testing::ValuesIn;

class RecordedDriverTest : public ::testing::TestWithParam<RecordedDriver> {
 protected:
  RecordedDriverTest()
      : node_({.profile = fmt::format("base: t4\ndriver: {{version: {}}}\n", GetParam().version)}),
        cuda_(node_.library("libcuda.so.1")) {}

  // Calls cuGetProcAddress of `cuda_`, without a status if the driver has only this version.
  RecordedAddress GetProcAddress(const RecordedAddress& recorded, int version) const {
    void* function = nullptr;
    RecordedAddress answer = recorded;
    const char* name = recorded.name.c_str();
    const unsigned flags = recorded.flags;
    const Result result =
        recorded.status == -1
            ? CU(cuda_, cuGetProcAddress)(name, &function, version, flags)
            : CU(cuda_, cuGetProcAddress_v2)(name, &function, version, flags, &answer.status);
    answer.result = int(result);
    // Several symbols of this library can share one address. RecordedSymbolsTest compares the
    // symbols.
    const bool same = function == (recorded.symbol.empty() ? nullptr : Export(recorded.symbol));
    if (!same) answer.symbol = "another symbol";
    return answer;
  }
  void* Export(const std::string& symbol) const { return dlsym(cuda_.handle(), symbol.c_str()); }

  sim::testing::SimNode node_;
  CudaLibrary cuda_;
};

INSTANTIATE_TEST_SUITE_P(Drivers, RecordedDriverTest, ValuesIn(sim::testing::kRecordedDrivers));

TEST_P(RecordedDriverTest, HasTheCudaVersionOfItsDriver) {
  int version = 0;
  EXPECT_EQ(CU(cuda_, cuDriverGetVersion)(&version), Result::kSuccess);
  EXPECT_EQ(version, GetParam().cuda_version);
}

TEST_P(RecordedDriverTest, GetProcAddressAnswersLikeTheDriver) {
  const auto recorded = sim::testing::RecordedAddresses(GetParam().version);
  if (!recorded.ok()) GTEST_SKIP() << recorded.status().message();
  std::set<std::string> differences;
  for (const RecordedAddress& theirs : *recorded) {
    for (const int version : {theirs.first_version, theirs.last_version}) {
      const RecordedAddress ours = GetProcAddress(theirs, version);
      const bool same_result = ours.result == theirs.result && ours.status == theirs.status;
      if (same_result && ours.symbol == theirs.symbol) continue;
      differences.insert(fmt::format("{}, flags {}, CUDA {}: {}/{} {}, not {}/{} {}", theirs.name,
                                     theirs.flags, version, ours.result, ours.status, ours.symbol,
                                     theirs.result, theirs.status, theirs.symbol));
    }
  }
  EXPECT_THAT(differences, IsEmpty());
}

TEST_P(RecordedDriverTest, GetProcAddressFindsNoExportByANameWithASuffix) {
  const auto exports = sim::testing::RecordedExports("libcuda", GetParam().version);
  if (!exports.ok()) GTEST_SKIP() << exports.status().message();
  int checked = 0;
  const auto get_proc_address =
      reinterpret_cast<fn::cuGetProcAddress_v2>(Export("cuGetProcAddress_v2"));
  EXPECT_EQ(get_proc_address == nullptr, GetParam().cuda_version < 12000);
  for (const std::string& symbol : *exports) {
    const bool suffix = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds") ||
                        (symbol.size() > 3 && symbol.substr(symbol.size() - 3, 2) == "_v");
    if (!suffix) continue;
    ++checked;
    void* function = this;
    const char* name = symbol.c_str();
    if (get_proc_address != nullptr) {
      int status = -1;
      EXPECT_EQ(get_proc_address(name, &function, 12000, 0, &status), Result::kSuccess);
      EXPECT_EQ(function, nullptr) << symbol;
      EXPECT_EQ(status, 1) << symbol;
    }
    EXPECT_EQ(CU(cuda_, cuGetProcAddress)(name, &function, 12000, 0), Result::kNotFound);
  }
  EXPECT_GT(checked, 100);
}

TEST_P(RecordedDriverTest, ErrorsHaveTheNamesAndTextsOfTheDriver) {
  const auto recorded = sim::testing::RecordedCudaErrors(GetParam().version);
  if (!recorded.ok()) GTEST_SKIP() << recorded.status().message();
  std::map<int, std::pair<std::string, std::string>> theirs, ours;
  for (const auto& error : *recorded) theirs[error.code] = {error.name, error.text};
  for (int code = -1; code <= 1000; ++code) {
    const char* name = "";
    const char* text = "";
    const Result result = CU(cuda_, cuGetErrorName)(Result(code), &name);
    EXPECT_EQ(CU(cuda_, cuGetErrorString)(Result(code), &text), result);
    EXPECT_EQ(name == nullptr, text == nullptr);
    EXPECT_EQ(result, name == nullptr ? Result::kInvalidValue : Result::kSuccess) << code;
    if (name != nullptr) ours[code] = {name, text};
  }
  EXPECT_EQ(ours, theirs);
}

TEST_P(RecordedDriverTest, NvmlErrorsHaveTheTextsOfTheDriver) {
  const auto recorded = sim::testing::RecordedNvmlErrors(GetParam().version);
  if (!recorded.ok()) GTEST_SKIP() << recorded.status().message();
  void* nvml = dlopen(node_.library("libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nvml, nullptr) << dlerror();
  const auto text_of = reinterpret_cast<nvml::fn::nvmlErrorString>(dlsym(nvml, "nvmlErrorString"));
  std::map<int, std::string> theirs, ours;
  for (int code = -1; code <= 1000; ++code) {
    theirs[code] = "Unknown Error";
    ours[code] = text_of(nvml::Return(code));
  }
  for (const auto& error : *recorded) theirs[error.code] = error.text;
  EXPECT_EQ(ours, theirs);
}

// Exports that only the library of the node has ("+name"), and exports that only the driver's
// library has ("-name").
std::set<std::string> Differences(const sim::testing::SimNode& node, std::string_view library,
                                  const std::vector<std::string>& recorded) {
  const auto exported =
      sim::testing::ExportedSymbols(node.library(fmt::format("{}.so.1", library)));
  const std::set<std::string> ours(exported.begin(), exported.end());
  const std::set<std::string> theirs(recorded.begin(), recorded.end());
  std::set<std::string> differences;
  for (const std::string& symbol : ours) {
    if (!theirs.contains(symbol)) differences.insert("+" + symbol);
  }
  for (const std::string& symbol : theirs) {
    if (!ours.contains(symbol) && !symbol.starts_with("cudbg")) differences.insert("-" + symbol);
  }
  return differences;
}

TEST(RecordedExportsTest, LibrariesExportWhatTheDriverExports) {
  const auto drivers = sim::testing::DriversWithRecordedExports();
  if (!drivers.ok()) GTEST_SKIP() << drivers.status().message();
  for (const std::string& driver : *drivers) {
    const sim::testing::SimNode node(
        {.profile = fmt::format("base: t4\ndriver: {{version: {}}}\n", driver)});
    auto cuda = Differences(node, "libcuda", *sim::testing::RecordedExports("libcuda", driver));
    cuda.erase("+cuDeviceGetLuid");  // a function of Windows, which only 418 lacks
    EXPECT_THAT(cuda, IsEmpty()) << driver;
    const auto recorded = sim::testing::RecordedExports("libnvidia-ml", driver);
    if (!recorded.ok()) continue;  // 390 has no record of NVML
    auto nvml = Differences(node, "libnvidia-ml", *recorded);
    nvml.erase("-nvmlRetry_NvRmControl");  // 470 alone exports it, by mistake
    EXPECT_THAT(nvml, IsEmpty()) << driver;
  }
}

}  // namespace
}  // namespace tessera::cuda
