// SPDX-License-Identifier: Apache-2.0
// Measures how long the choice of GPUs takes: p50, p99 and maximum for every request size on nodes
// of 8 and 16 GPUs, for the idle node and for random sets of free GPUs, and the time to build the
// tables. For 8 GPUs the published method, which enumerates every partition, gets the same
// requests. Then measures choices by bit mask, as the scheduler makes them, and what links cost the
// scheduler with 5,000 nodes.
//   preferred_bench [questions per size, 2000]
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/placement/chooser.h"
#include "src/placement/linked_groups.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Times {
  std::vector<double> micros;

  double At(double quantile) {
    std::ranges::sort(micros);
    return micros[static_cast<size_t>(quantile * static_cast<double>(micros.size() - 1))];
  }
};

// The slowest topology and size by median, and the slowest by 99th percentile, which may differ.
struct Worst {
  double p50 = 0, p99 = 0;
  std::string where_p50, where_p99;

  void Consider(const std::string& topology, int size, Times* times) {
    const std::string where = topology + ", size " + std::to_string(size);
    if (times->At(0.5) > p50) p50 = times->At(0.5), where_p50 = where;
    if (times->At(0.99) > p99) p99 = times->At(0.99), where_p99 = where;
  }
};

// The published method: enumerates every partition of the available GPUs into groups of `size` and
// one group of the rest, and chooses the best group of the partition with the best total.
class PartitionEnumeration {
 public:
  PartitionEnumeration(const Topology& topology, uint32_t available, int size)
      : topology_(topology), size_(size), padded_(std::popcount(available) % size) {
    std::vector<uint32_t> groups;
    Enumerate(available, &groups);
  }
  uint32_t best_set() const { return best_set_; }

 private:
  int Score(uint32_t set) const {
    int sum = 0;
    for (uint32_t a = set; a != 0; a &= a - 1) {
      for (uint32_t b = a & (a - 1); b != 0; b &= b - 1) {
        sum += device::ScoreOf(topology_.links.At(std::countr_zero(a), std::countr_zero(b)));
      }
    }
    return sum;
  }

  void Enumerate(uint32_t left, std::vector<uint32_t>* groups) {
    if (left == 0) return Consider(*groups);
    const uint32_t lowest = left & -left;
    for (uint32_t part = left; part != 0; part = (part - 1) & left) {
      if ((part & lowest) == 0) continue;
      const int count = std::popcount(part);
      const bool rest_of_division = count == padded_ && std::popcount(left) % size_ == padded_;
      if (count != size_ && !rest_of_division) continue;
      groups->push_back(part);
      Enumerate(left ^ part, groups);
      groups->pop_back();
    }
  }

  void Consider(const std::vector<uint32_t>& groups) {
    int total = 0;
    for (const uint32_t group : groups) total += Score(group);
    if (total <= best_total_) return;
    best_total_ = total;
    int best_score = -1;
    for (const uint32_t group : groups) {
      if (std::popcount(group) != size_ || Score(group) <= best_score) continue;
      best_score = Score(group);
      best_set_ = group;
    }
  }

  const Topology& topology_;
  const int size_;
  const int padded_;
  int best_total_ = -1;
  uint32_t best_set_ = 0;
};

uint32_t RandomState(int count, int size, std::mt19937* random) {
  const uint32_t everything = (1u << count) - 1;
  uint32_t state = everything;
  do {
    state = (*random)() % 4 == 0 ? everything : (*random)() & everything;
  } while (std::popcount(state) < size);
  return state;
}

std::vector<std::string> IdsOf(const Topology& topology, uint32_t mask) {
  std::vector<std::string> ids;
  for (; mask != 0; mask &= mask - 1) ids.push_back(topology.ids[std::countr_zero(mask)]);
  return ids;
}

void Measure(const std::string& name, const Topology& topology, int questions, Times* all,
             Worst* worst) {
  const auto start = Clock::now();
  const Chooser chooser(topology);
  const int count = static_cast<int>(topology.ids.size());
  std::printf("%s, %d GPUs: tables %.2f ms\n", name.c_str(), count, MicrosSince(start) / 1000);
  const bool compare = count <= 8;
  std::printf("  size      p50      p99      max us%s\n",
              compare ? "   enumeration p50      p99      max us" : "");
  std::mt19937 random(1);
  for (int size = 1; size <= count; ++size) {
    Times ours, theirs;
    for (int i = 0; i < questions; ++i) {
      // The slowest state comes first: every GPU is free.
      const uint32_t state = i == 0 ? (1u << count) - 1 : RandomState(count, size, &random);
      const std::vector<std::string> ids = IdsOf(topology, state);
      const auto asked = Clock::now();
      const auto answer = chooser.ChooseDevices(ids, {}, size);
      ours.micros.push_back(MicrosSince(asked));
      if (answer->size() != static_cast<size_t>(size)) std::abort();
      if (!compare) continue;
      const auto begin = Clock::now();
      const PartitionEnumeration enumeration(topology, state, size);
      theirs.micros.push_back(MicrosSince(begin));
      if (std::popcount(enumeration.best_set()) != size) std::abort();
    }
    worst->Consider(name, size, &ours);
    all->micros.insert(all->micros.end(), ours.micros.begin(), ours.micros.end());
    std::printf("  %4d %8.1f %8.1f %8.1f", size, ours.At(0.5), ours.At(0.99), ours.At(1));
    if (compare) {
      std::printf("      %12.1f %8.1f %8.1f", theirs.At(0.5), theirs.At(0.99), theirs.At(1));
    }
    std::printf("\n");
  }
}

// Choice and best score by mask over random states, all sizes of request together.
void MeasureMasks(int count, int questions) {
  const LinkedGroups groups(testing::RandomLinks(count, 5));
  Times choices, scores;
  std::mt19937 random(2);
  for (int i = 0; i < questions; ++i) {
    const int size = 1 + i % count;
    const uint32_t state = RandomState(count, size, &random);
    const auto start = Clock::now();
    const uint64_t chosen = groups.Choose(state, 0, size);
    choices.micros.push_back(MicrosSince(start));
    const auto middle = Clock::now();
    const int best = groups.BestScore(state, size);
    scores.micros.push_back(MicrosSince(middle));
    if (std::popcount(chosen) != size || best < groups.ScoreOf(chosen)) std::abort();
  }
  std::printf(
      "by mask, %d GPUs: choice p50 %.2f us, p99 %.2f us, max %.2f us; "
      "best score p50 %.2f us, p99 %.2f us, max %.2f us\n",
      count, choices.At(0.5), choices.At(0.99), choices.At(1), scores.At(0.5), scores.At(0.99),
      scores.At(1));
}

// Builds the LinkedGroups of 5,000 nodes with three topologies of 8 GPUs, and finds the node with
// the best linked free pair.
void MeasureCluster() {
  constexpr int kNodes = 5000;
  const Topology kinds[] = {testing::NvLinkPairs(8), testing::NvSwitch(8), testing::CubeMesh(8)};
  LinkedGroupsCache cache;
  std::vector<std::shared_ptr<const LinkedGroups>> nodes;
  const auto start = Clock::now();
  for (int i = 0; i < kNodes; ++i) nodes.push_back(cache.Get(kinds[i % 3]));
  const double made = MicrosSince(start);
  std::mt19937 random(3);
  const auto asked = Clock::now();
  int best = 0;
  for (const auto& node : nodes) best = std::max(best, node->BestScore(random() & 0xff, 2));
  std::printf(
      "%d nodes of 8 GPUs: %zu tables, found in %.2f ms; best pair of all in %.2f ms (%d "
      "points)\n",
      kNodes, cache.size(), made / 1000, MicrosSince(asked) / 1000, best);
}

int Main(int argc, char** argv) {
  const int questions = argc > 1 ? std::atoi(argv[1]) : 2000;
  if (questions < 1) {
    std::fprintf(stderr, "usage: preferred_bench [questions per size]\n");
    return 64;
  }
  const std::pair<const char*, std::function<Topology(int)>> kTopologies[] = {
      {"NVLink pairs", testing::NvLinkPairs},
      {"NVLink quads", testing::NvLinkQuads},
      {"NVSwitch", testing::NvSwitch},
      {"hybrid cube mesh", testing::CubeMesh},
      {"PCIe only", testing::PcieOnly},
      {"random links", [](int count) { return testing::RandomLinks(count, 5); }},
      {"unknown links", testing::UnknownLinks},
  };
  for (const int count : {8, 16}) {
    Times all;
    Worst worst;
    for (const auto& [name, make] : kTopologies)
      Measure(name, make(count), questions, &all, &worst);
    std::printf(
        "%d GPUs, all topologies and sizes: p50 %.1f us, p99 %.1f us, max %.1f us\n"
        "%d GPUs, worst of all: p50 %.1f us (%s), p99 %.1f us (%s)\n\n",
        count, all.At(0.5), all.At(0.99), all.At(1), count, worst.p50, worst.where_p50.c_str(),
        worst.p99, worst.where_p99.c_str());
  }
  for (const int count : {8, 16}) MeasureMasks(count, questions);
  MeasureCluster();
  return 0;
}

}  // namespace
}  // namespace tessera::placement

int main(int argc, char** argv) { return tessera::placement::Main(argc, argv); }
