// SPDX-License-Identifier: Apache-2.0
// Every driver function that allocates, frees or reports device memory, gives work to the GPU,
// waits for it, or changes an executable graph must be replaced, or exempted with a reason.
#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace tessera::limiter {
namespace {

using ::testing::IsEmpty;

#define LIMITER_REASON(name, text) constexpr std::string_view name = text;
#define LIMITER_EXEMPT(symbol, reason)
#include "src/limiter/loader/exemptions.inc"
#undef LIMITER_EXEMPT
#undef LIMITER_REASON

const std::set<std::string> kReplaced = {
#define LIMITER_WRAPPED(symbol, type) #symbol,
#define LIMITER_CALLED(symbol, type)
#include "src/limiter/loader/functions.inc"
#undef LIMITER_CALLED
#undef LIMITER_WRAPPED
};

const std::map<std::string, std::string_view> kExempt = {
#define LIMITER_REASON(name, text)
#define LIMITER_EXEMPT(symbol, reason) {#symbol, reason},
#include "src/limiter/loader/exemptions.inc"
#undef LIMITER_EXEMPT
#undef LIMITER_REASON
};

const std::map<std::string, std::string_view> kClasses = {
#define CUDA_SYMBOL(symbol, since, class_) {#symbol, #class_},
#define CUDA_DEBUGGER_SYMBOL(symbol)
#include "api/cuda_symbols.inc"
#undef CUDA_DEBUGGER_SYMBOL
#undef CUDA_SYMBOL
};

bool ChangesGraph(std::string_view symbol) {
  const auto has = [symbol](std::string_view part) { return symbol.find(part) != symbol.npos; };
  return has("cuGraphNodeSetEnabled") ||
         (symbol.starts_with("cuGraphExec") && (has("Set") || has("Update")));
}
bool ConcernsLimiter(std::string_view symbol, std::string_view symbol_class) {
  return symbol_class != "Pass" || ChangesGraph(symbol);
}

TEST(ExemptionsTest, EveryFunctionThatConcernsTheLimiterIsReplacedOrExempt) {
  std::set<std::string> missing, both;
  for (const auto& [symbol, symbol_class] : kClasses) {
    if (!ConcernsLimiter(symbol, symbol_class)) continue;
    const bool replaced = kReplaced.contains(symbol), exempt = kExempt.contains(symbol);
    if (!replaced && !exempt) missing.insert(symbol);
    if (replaced && exempt) both.insert(symbol);
  }
  EXPECT_THAT(missing, IsEmpty())
      << "add each to functions.inc, or with a reason to exemptions.inc";
  EXPECT_THAT(both, IsEmpty()) << "the limiter replaces these: remove them from exemptions.inc";
}

TEST(ExemptionsTest, EveryExemptionIsAFunctionThatConcernsTheLimiter) {
  std::set<std::string> wrong;
  for (const auto& [symbol, reason] : kExempt) {
    const auto found = kClasses.find(symbol);
    const bool concerns = found != kClasses.end() && ConcernsLimiter(symbol, found->second);
    if (!concerns || reason.empty()) wrong.insert(symbol);
  }
  EXPECT_THAT(wrong, IsEmpty());
}

// If a function is replaced for one stream mode only, a program of the other mode calls the
// driver's function.
TEST(ExemptionsTest, FunctionsAreReplacedForBothStreamModes) {
  std::set<std::string> missing;
  for (const std::string& symbol : kReplaced) {
    for (const char* mode : {"_ptsz", "_ptds"}) {
      const std::string other = symbol + mode;
      if (kClasses.contains(other) && !kReplaced.contains(other)) missing.insert(other);
    }
  }
  EXPECT_THAT(missing, IsEmpty());
}

}  // namespace
}  // namespace tessera::limiter
