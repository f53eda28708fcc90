// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz targets in every build, without libFuzzer: first all seeds, then a fixed number of
// mutations of the seeds. The random source is fixed, so that a failure can be repeated.
// TESSERA_FUZZ_ROUNDS sets another number of mutations. A target that fails ends the program, and
// the test prints the target's input to standard error.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/strings.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

// A round takes many times as long with sanitizers.
#ifdef __SANITIZE_ADDRESS__
constexpr int kRounds = 4000;
#else
constexpr int kRounds = 20000;
#endif

// Numbers and texts at the edges of what parsers accept.
constexpr std::array<std::string_view, 32> kWords = {"-1",
                                                     "0",
                                                     "1",
                                                     "1.5",
                                                     "99",
                                                     "100",
                                                     "101",
                                                     "150",
                                                     "1e3",
                                                     "1e19",
                                                     "500m",
                                                     "1Gi",
                                                     "8Ei",
                                                     "0.1",
                                                     ".",
                                                     "",
                                                     "+",
                                                     "9223372036854775807",
                                                     "9223372036854775808",
                                                     "-9223372036854775808",
                                                     "18446744073709551616",
                                                     "{}",
                                                     "[]",
                                                     "\"\"",
                                                     "null",
                                                     ",",
                                                     "\n",
                                                     "\xff",
                                                     "\0x",
                                                     "1,1",
                                                     "true",
                                                     "99999999999999999999999999999999"};

std::vector<std::string> ReadSeeds(std::string_view target) {
  std::vector<std::string> seeds;
  const auto folder = std::filesystem::path(TESSERA_FUZZ_CORPUS) / target;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string Next() {
    std::string text = Any(seeds_);
    for (uint64_t steps = 1 + Below(4); steps > 0; --steps) Step(&text);
    return text;
  }

 private:
  // Not std::uniform_int_distribution, which differs from library to library.
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }
  template <typename Container>
  const typename Container::value_type& Any(const Container& container) {
    return container[Below(container.size())];
  }

  void Step(std::string* text) {
    const size_t at = Below(text->size() + 1);
    const size_t length = Below(std::min<size_t>(text->size() - at, 24) + 1);
    switch (Below(6)) {
      case 0:  // change a byte
        if (at < text->size()) (*text)[at] = static_cast<char>(random_());
        break;
      case 1:
        text->erase(at, length);
        break;
      case 2:
        text->insert(at, Any(kWords));
        break;
      case 3:
        ReplaceNumber(at, text);
        break;
      case 4:  // repeat a part
        text->insert(at, text->substr(at, length));
        break;
      default: {  // insert a part of another seed
        const std::string& other = Any(seeds_);
        const size_t from = Below(other.size() + 1);
        text->replace(at, length, other.substr(from, Below(64)));
      }
    }
  }

  // Replaces the first number at or behind `at` by a word of kWords.
  void ReplaceNumber(size_t at, std::string* text) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto begin = std::find_if(text->begin() + at, text->end(), is_digit);
    const auto end = std::find_if_not(begin, text->end(), is_digit);
    text->replace(begin, end, Any(kWords));
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_{20240229};
};

// The input of the target that runs now. The signal handler prints it when the target aborts.
std::string_view running;

void PrintInput(int) {
  std::fprintf(stderr, "the input, in hex: %s\n", HexEncode(running).c_str());
  std::signal(SIGABRT, SIG_DFL);
}

int Rounds() {
  const char* rounds = std::getenv("TESSERA_FUZZ_ROUNDS");
  return rounds == nullptr ? kRounds : std::atoi(rounds);
}

class MutationTest : public ::testing::TestWithParam<Target> {};

TEST_P(MutationTest, HoldsForEverySeedAndItsMutations) {
  const std::vector<std::string> seeds = ReadSeeds(GetParam().name);
  ASSERT_FALSE(seeds.empty()) << "no seeds in " << TESSERA_FUZZ_CORPUS << "/" << GetParam().name;
  const auto run = [](std::string_view input) {
    running = input;
    GetParam().run(input);
  };
  std::signal(SIGABRT, PrintInput);
  run("");
  for (const std::string& seed : seeds) run(seed);
  Mutator mutator(seeds);
  for (int round = 0; round < Rounds(); ++round) run(mutator.Next());
  std::signal(SIGABRT, SIG_DFL);
}

INSTANTIATE_TEST_SUITE_P(Fuzz, MutationTest, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace tessera::fuzz
