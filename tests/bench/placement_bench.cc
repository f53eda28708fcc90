// SPDX-License-Identifier: Apache-2.0
// Compares the cost of decisions of the default policy with FGD, in a cluster whose pods come and
// go while about 90 % of its GPUs are in use:
//   choose    a pod is decided and placed, and another pod leaves
//   scores    the scores of a pod on all nodes, after one pod came or left
//   first     the scores for a shape that the policy has not seen before
// Prints microseconds, and the memory of the process with the pods that it holds.
//   placement_bench [nodes, 5000] [pods, 100000]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "src/placement/policy.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using Clock = std::chrono::steady_clock;

class Times {
 public:
  template <typename Work>
  void Measure(Work&& work) {
    const auto start = Clock::now();
    work();
    values_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  void Print(const char* policy, const char* name) {
    std::sort(values_.begin(), values_.end());
    std::printf("%-8s %-9s %9.1f %9.1f %9.1f\n", policy, name, values_[values_.size() / 2],
                values_[values_.size() * 99 / 100], values_.back());
  }

 private:
  std::vector<double> values_;
};

long ResidentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  }
  return 0;
}

// Half of the pods take part of a GPU, and few take many.
Demand RandomDemand(std::mt19937* random, bool small) {
  static constexpr int kCounts[] = {1, 1, 1, 1, 1, 1, 2, 2, 4, 8};
  const int64_t cpu = 500 * static_cast<int64_t>(2 + (*random)() % 8);
  if (small)
    return testing::MakeDemand(1, 20 + 10 * static_cast<int>((*random)() % 4), Bytes(0), 300);
  if ((*random)() % 2) {
    return testing::MakeDemand(1, 50 * static_cast<int>(2 + (*random)() % 17), Bytes(0), cpu);
  }
  const int count = kCounts[(*random)() % std::size(kCounts)];
  return testing::MakeDemand(count, 1000, Bytes(0), cpu * count);
}

void Run(std::string_view name, int nodes, size_t pods) {
  std::mt19937 random(1);
  Cluster cluster;
  for (int i = 0; i < nodes; ++i) {
    (void)*cluster.AddNode(
        testing::MakeNode(fmt::format("node-{}", i), 8, GiB(80), i % 3 == 0 ? "H100" : "A100"));
  }
  PolicyOptions options;
  for (int i = 0; i < 30; ++i) {
    options.mix.push_back({*cluster.Intern(RandomDemand(&random, pods > 60000)), 1});
  }
  const auto policy = *MakePolicy(name, cluster, options);
  std::vector<PodId> running;
  Times choose, scores, first;
  const auto arrive = [&](Times* times) {
    const ShapeId shape = *cluster.Intern(RandomDemand(&random, pods > 60000));
    policy->OnArrival(shape);
    std::optional<Placement> decision;
    const auto decide = [&] { decision = policy->Choose(shape); };
    if (times) {
      times->Measure(decide);
    } else {
      decide();
    }
    if (decision) running.push_back(*cluster.Place(shape, decision->node, decision->pick));
  };
  const auto leave = [&] {
    std::swap(running[random() % running.size()], running.back());
    policy->OnDeparture(cluster.Find(running.back())->shape);
    (void)cluster.Remove(running.back());
    running.pop_back();
  };
  while (running.size() < pods && cluster.free_milli() * 10 > cluster.total_milli())
    arrive(nullptr);
  for (int i = 0; i < 5000; ++i) {
    arrive(&choose);
    while (cluster.free_milli() * 10 < cluster.total_milli() || running.size() > pods) leave();
  }
  const ShapeId shape = *cluster.Intern(testing::MakeDemand(1, 500));
  (void)policy->Scores(shape);
  for (int i = 0; i < 1000; ++i) {
    leave();
    scores.Measure([&] { (void)policy->Scores(shape); });
    const ShapeId other = *cluster.Intern(testing::MakeDemand(1, 500, Bytes(0), 1000 + i));
    if (i < 200) first.Measure([&] { (void)policy->Scores(other); });
    leave();
    arrive(nullptr);
    arrive(nullptr);
  }
  const std::string label(name);
  choose.Print(label.c_str(), "choose");
  scores.Print(label.c_str(), "scores");
  first.Print(label.c_str(), "first");
  std::printf("%-8s %zu pods on %zu nodes, %ld MiB resident\n\n", label.c_str(),
              cluster.pod_count(), cluster.size(), ResidentKib() >> 10);
}

int Main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 5000;
  const int pods = argc > 2 ? std::atoi(argv[2]) : 100000;
  if (nodes < 1 || pods < 1 || argc > 3) {
    std::fprintf(stderr, "usage: placement_bench [nodes] [pods]\n");
    return 64;
  }
  std::printf("%-8s %-9s %9s %9s %9s   microseconds\n", "", "", "p50", "p99", "max");
  for (const char* policy : {"Tessera", "FGD"}) Run(policy, nodes, static_cast<size_t>(pods));
  return 0;
}

}  // namespace
}  // namespace tessera::placement

int main(int argc, char** argv) { return tessera::placement::Main(argc, argv); }
