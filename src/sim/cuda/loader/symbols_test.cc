// SPDX-License-Identifier: Apache-2.0
// Compares api/cuda_symbols.inc and its lookup with the exports and answers of NVIDIA's drivers.
// No real entry points are linked. Each symbol keeps its own weak stub of symbols.cc, so its
// address identifies it.
#include "src/sim/cuda/loader/symbols.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/sim/testing/driver_records.h"

#define CUDA_SYMBOL(name, since, class_) extern "C" int name();
#define CUDA_DEBUGGER_SYMBOL(name)
#include "api/cuda_symbols.inc"
#undef CUDA_SYMBOL
#undef CUDA_DEBUGGER_SYMBOL

namespace tessera::cuda {

int ReportUnimplemented(const char*) { return 801; }

namespace {

using sim::testing::RecordedDriver;
using ::testing::AnyOf;
using ::testing::IsEmpty;
using ::testing::ValuesIn;

struct Row {
  std::string_view symbol;
  unsigned since;
  std::string_view class_name;
  AnyFunction function;
};

constexpr Row kRows[] = {
#define CUDA_SYMBOL(name, since, class_) {#name, since, #class_, &name},
#define CUDA_DEBUGGER_SYMBOL(name) {#name, 0, "Pass", nullptr},
#include "api/cuda_symbols.inc"
#undef CUDA_SYMBOL
#undef CUDA_DEBUGGER_SYMBOL
};

// Sets of names, so that a failure names the differences.
using Names = std::set<std::string>;

Names Without(const Names& names, const Names& others) {
  Names remaining;
  std::ranges::set_difference(names, others, std::inserter(remaining, remaining.end()));
  return remaining;
}

TEST(CudaSymbolsTest, EverySymbolHasAClassAndIsUnique) {
  std::string_view last;
  for (const Row& row : kRows) {
    EXPECT_THAT(row.class_name, AnyOf("Allocate", "Free", "Launch", "Wait", "View", "Pass"))
        << row.symbol;
    EXPECT_TRUE(row.since == 0 || (row.since >= 2000 && row.since % 10 == 0)) << row.symbol;
    EXPECT_LT(last, row.symbol) << "the table is sorted";
    last = row.symbol;
  }
}

TEST(CudaSymbolsTest, EveryVersionOfAFunctionHasOneClass) {
  std::map<std::string, std::string_view> classes;
  for (const Row& row : kRows) {
    std::string base(row.symbol);
    for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
      if (base.ends_with(suffix)) base.resize(base.size() - suffix.size());
    }
    EXPECT_EQ(classes.emplace(base, row.class_name).first->second, row.class_name) << row.symbol;
  }
}

TEST(CudaSymbolsTest, EveryFunctionWithASignatureIsASymbol) {
  const Names declared = {
#define CUDA_FUNCTION(name, parameters) #name,
#include "api/cuda_functions.inc"
#undef CUDA_FUNCTION
  };
  Names known;
  for (const Row& row : kRows) known.emplace(row.symbol);
  EXPECT_THAT(Without(declared, known), IsEmpty());
}

TEST(CudaSymbolsTest, EveryExportOfARecordedDriverHasAClass) {
  const auto drivers = sim::testing::DriversWithRecordedExports();
  if (!drivers.ok()) GTEST_SKIP() << drivers.status().message();
  Names known;
  for (const Row& row : kRows) known.emplace(row.symbol);
  for (const std::string& driver : *drivers) {
    const auto exports = sim::testing::RecordedExports("libcuda", driver);
    ASSERT_TRUE(exports.ok()) << exports.status().message();
    EXPECT_THAT(Without(Names(exports->begin(), exports->end()), known), IsEmpty())
        << "driver " << driver << ": add them to api/cuda_symbols.inc, with their classes";
  }
}

class RecordedSymbolsTest : public ::testing::TestWithParam<RecordedDriver> {};

INSTANTIATE_TEST_SUITE_P(Drivers, RecordedSymbolsTest, ValuesIn(sim::testing::kRecordedDrivers));

TEST_P(RecordedSymbolsTest, ADriverExportsTheSymbolsUpToItsCudaVersion) {
  const auto exports = sim::testing::RecordedExports("libcuda", GetParam().version);
  if (!exports.ok()) GTEST_SKIP() << exports.status().message();
  const Names exported(exports->begin(), exports->end());
  Names older, newer;
  for (const Row& row : kRows) {
    if (row.since == 0) continue;
    (row.since <= unsigned(GetParam().cuda_version) ? older : newer).emplace(row.symbol);
  }
  EXPECT_THAT(Without(older, exported), IsEmpty());
  EXPECT_EQ(Without(newer, exported), newer);
}

TEST_P(RecordedSymbolsTest, TheLookupFindsTheSymbolsThatTheDriverAnswers) {
  const auto answers = sim::testing::RecordedAddresses(GetParam().version);
  if (!answers.ok()) GTEST_SKIP() << answers.status().message();
  std::map<AnyFunction, std::string_view> names = {{nullptr, ""}};
  for (const Row& row : kRows) names.emplace(row.function, row.symbol);
  Names differences;
  for (const auto& answer : *answers) {
    for (const int version : {answer.first_version, answer.last_version}) {
      const FoundSymbol found = FindSymbol(answer.name, answer.flags == 2, unsigned(version),
                                           unsigned(GetParam().cuda_version));
      if (names[found.function] == answer.symbol) continue;
      differences.insert(fmt::format("{}, flags {}, CUDA {}: \"{}\", not \"{}\"", answer.name,
                                     answer.flags, version, names[found.function], answer.symbol));
    }
  }
  EXPECT_THAT(differences, IsEmpty());
}

TEST(FindSymbolTest, OnlyBaseNamesAreFound) {
  for (const char* name :
       {"", "cuNothing", "cumemalloc", "cuMemAlloc_v2", "cuMemAlloc_v2_ptsz", "cuLaunchKernel_ptsz",
        "cuMemcpy_ptds", "cuMemAl", "cuMemGetAttribute"}) {
    const FoundSymbol found = FindSymbol(name, false, 12000, 12040);
    EXPECT_EQ(found.function, nullptr) << name;
    EXPECT_EQ(found.status, Lookup::kSymbolNotFound) << name;
  }
}

TEST(FindSymbolTest, ARequestedVersionAboveTheDriversIsTreatedAsTheDrivers) {
  EXPECT_EQ(FindSymbol("cuCtxGetDevice", false, UINT_MAX, 12040).function, &cuCtxGetDevice);
  EXPECT_EQ(FindSymbol("cuCtxGetDevice", false, UINT_MAX, 13000).function, &cuCtxGetDevice_v2);
}

}  // namespace
}  // namespace tessera::cuda
