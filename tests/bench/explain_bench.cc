// SPDX-License-Identifier: Apache-2.0
// Measures what the reasons of unfit nodes cost the scheduler in one answer to filter. The cluster
// has 5,000 nodes of 8 GPUs and is partly full. For each of four demands the program computes the
// reason for every node, the reasons as texts, and their summary in one line.
//   explain_bench [nodes, 5000]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "src/placement/explain.h"
#include "src/placement/fit.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using Clock = std::chrono::steady_clock;

double MillisSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void Fill(Cluster* cluster, int nodes) {
  std::mt19937 random(1);
  for (int i = 0; i < nodes; ++i) {
    const NodeId node = *cluster->AddNode(
        testing::MakeNode(fmt::format("node-{}", i), 8, GiB(80), i % 3 == 0 ? "H100" : "A100"));
    for (int pod = 0; pod < 7; ++pod) {
      const Demand demand =
          random() % 2 ? testing::MakeDemand(1, 1000) : testing::MakeDemand(1, 700, GiB(60));
      Pick pick;
      if (!PickTightest(cluster->node(node), demand, &pick)) continue;
      (void)*cluster->Place(*cluster->Intern(demand), node, pick);
    }
  }
}

// Takes the best of ten runs, because other work on the machine only adds time.
template <typename Work>
double Best(const Work& work) {
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    const auto start = Clock::now();
    work();
    best = std::min(best, MillisSince(start));
  }
  return best;
}

int Main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 5000;
  if (nodes < 1) {
    std::fprintf(stderr, "usage: explain_bench [nodes]\n");
    return 64;
  }
  Cluster cluster;
  Fill(&cluster, nodes);
  Demand typed = testing::MakeDemand(4, 1000);
  typed.models.set(cluster.FindModel("H100"));
  const std::pair<const char*, Demand> demands[] = {
      {"2 GPUs", testing::MakeDemand(2, 1000)},
      {"4 H100", typed},
      {"0.4 GPU", testing::MakeDemand(1, 400, GiB(30))},
      {"200 CPU", testing::MakeDemand(1, 1000, Bytes(0), 200000)},
  };
  for (const auto& [name, demand] : demands) {
    const double sum = Best([&] { (void)CountShortfalls(cluster, demand).Text(); });
    size_t bytes = 0;
    const double texts = Best([&] {
      bytes = 0;
      for (NodeId node = 0; node < cluster.size(); ++node) {
        bytes += TextOf(ShortfallOf(cluster.node(node), demand), demand, cluster).size();
      }
    });
    std::printf("%-8s %d nodes: sum %.2f ms, a text for each %.2f ms (%zu KiB)  %s\n", name, nodes,
                sum, texts, bytes >> 10, CountShortfalls(cluster, demand).Text().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace tessera::placement

int main(int argc, char** argv) { return tessera::placement::Main(argc, argv); }
