// SPDX-License-Identifier: Apache-2.0
// Measures what the default policy gains if gangs are reported to it. A cluster fills with small
// pods and with gangs, which are placed all or none, until all GPUs are requested. A gang is
// reported in one of four ways: by ArrivalsOf; as single pods, whatever the layout of the gang; not
// at all; or as four times its ArrivalsOf, so that slots for the gang are worth more than any price
// of a gang could make them. Prints means of ten seeds: the percentage of gangs that were placed,
// and the percentage of GPUs that were allocated.
#include <array>
#include <cstdio>
#include <random>

#include "src/placement/gang.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;

constexpr int kNodes = 200, kGpus = 8, kSeeds = 10;
constexpr double kGangShare = 0.3;  // of the requested GPUs

struct GangKind {
  const char* name;
  Demand pod;
  Gang gang;  // without the shape
};

struct Outcome {
  double placed = 0, allocated = 0;  // percent
};

Demand SmallPod(std::mt19937& random) {
  constexpr std::array kMilli = {1000, 1000, 1000, 500, 810, 190};
  return MakeDemand(1, kMilli[random() % kMilli.size()], Bytes(0), 6000);
}

enum class ReportedArrivals { kNothing, kPods, kArrivals, kFourTimes };

void ReportArrivals(Cluster& cluster, Policy& policy, const Gang& gang, ReportedArrivals reported) {
  if (reported == ReportedArrivals::kNothing) return;
  Gang loose = gang;
  if (reported == ReportedArrivals::kPods) loose.layout = GangLayout::kAnywhere;
  for (int i = 0; i < (reported == ReportedArrivals::kFourTimes ? 4 : 1); ++i) {
    for (const ShapeId shape : ArrivalsOf(cluster, loose)) policy.OnArrival(shape);
  }
}

Outcome Fill(const GangKind& kind, const char* policy_name, ReportedArrivals reported,
             uint32_t seed) {
  std::mt19937 random(seed);
  Cluster cluster;
  for (int i = 0; i < kNodes; ++i) {
    (void)*cluster.AddNode(testing::MakeNode(fmt::format("n{}", i), kGpus));
  }
  std::vector<MixEntry> mix;
  for (int i = 0; i < 12; ++i) mix.push_back({*cluster.Intern(SmallPod(random)), 1.0});
  const auto policy = *MakePolicy(policy_name, cluster, {.mix = mix});
  Gang gang = kind.gang;
  gang.members[0].shape = *cluster.Intern(kind.pod);
  const int64_t gang_milli = kind.pod.milli() * gang.members[0].count;
  int gangs = 0, placed = 0;
  int64_t requested_milli = 0, gang_requested_milli = 0;
  while (requested_milli < cluster.total_milli()) {
    if (static_cast<double>(gang_requested_milli) <
            kGangShare * static_cast<double>(requested_milli) &&
        random() % 8 == 0) {
      ReportArrivals(cluster, *policy, gang, reported);
      placed += PlaceGang(cluster, *policy, gang).placed;
      ++gangs;
      requested_milli += gang_milli;
      gang_requested_milli += gang_milli;
      continue;
    }
    const ShapeId shape = *cluster.Intern(SmallPod(random));
    policy->OnArrival(shape);
    requested_milli += cluster.demand(shape).milli();
    if (const auto decision = policy->Choose(shape)) {
      (void)*cluster.Place(shape, decision->node, decision->pick);
    }
  }
  const double all = static_cast<double>(cluster.total_milli());
  return {100.0 * placed / gangs, 100 * (all - static_cast<double>(cluster.free_milli())) / all};
}

void Measure(const GangKind& kind, const char* policy, const char* how, ReportedArrivals reported) {
  Outcome mean;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome one = Fill(kind, policy, reported, seed);
    mean.placed += one.placed / kSeeds;
    mean.allocated += one.allocated / kSeeds;
  }
  std::printf("%-26s %-8s %-18s %8.2f %10.2f\n", kind.name, policy, how, mean.placed,
              mean.allocated);
}

}  // namespace
}  // namespace tessera::placement

int main() {
  using namespace tessera::placement;
  const auto gang = [](int count, GangLayout layout) {
    return Gang{.members = {{.count = count}}, .layout = layout, .strict = true};
  };
  const std::array<GangKind, 3> kinds = {
      {{"4 pods of 8, anywhere", testing::MakeDemand(8, 1000, tessera::Bytes(0), 64000),
        gang(4, GangLayout::kAnywhere)},
       {"16 pods of 4, anywhere", testing::MakeDemand(4, 1000, tessera::Bytes(0), 32000),
        gang(16, GangLayout::kAnywhere)},
       {"4 pods of 2, on one node", testing::MakeDemand(2, 1000, tessera::Bytes(0), 16000),
        gang(4, GangLayout::kOneNode)}}};
  std::printf("%-26s %-8s %-18s %8s %10s\n", "gangs", "policy", "reported", "placed", "allocated");
  for (const GangKind& kind : kinds) {
    Measure(kind, "FGD", "", ReportedArrivals::kPods);
    Measure(kind, "Tessera", "nothing", ReportedArrivals::kNothing);
    Measure(kind, "Tessera", "its pods", ReportedArrivals::kPods);
    Measure(kind, "Tessera", "ArrivalsOf", ReportedArrivals::kArrivals);
    Measure(kind, "Tessera", "four times", ReportedArrivals::kFourTimes);
  }
}
