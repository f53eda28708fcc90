// SPDX-License-Identifier: Apache-2.0
// Common node topologies, for tests and benchmarks.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/placement/chooser.h"

namespace tessera::placement::testing {

inline Topology MakeTopology(int count, int numa_nodes,
                             const std::function<device::Link(int, int)>& link) {
  Topology topology;
  topology.links = device::LinkMatrix(count);
  for (int i = 0; i < count; ++i) {
    topology.ids.push_back(fmt::format("GPU-12345678-1234-1234-1234-{:012}", i));
    topology.numa_nodes.push_back(numa_nodes == 0 ? std::optional<int>() : i * numa_nodes / count);
    for (int j = 0; j < i; ++j) topology.links.Set(j, i, link(j, i));
  }
  return topology;
}

inline device::PcieLevel PcieOf(int a, int b, int count) {
  if (a / 2 == b / 2) return device::PcieLevel::kSingleSwitch;
  const bool one_socket = a / (count / 2) == b / (count / 2);
  return one_socket ? device::PcieLevel::kHostBridge : device::PcieLevel::kSystem;
}

// Pairs with an NVLink bridge.
inline Topology NvLinkPairs(int count) {
  return MakeTopology(count, 2, [=](int a, int b) {
    const uint8_t links = a / 2 == b / 2 ? 12 : 0;
    return device::Link{.pcie = PcieOf(a, b, count), .nvlinks = links};
  });
}

// Groups of four, all linked.
inline Topology NvLinkQuads(int count) {
  return MakeTopology(count, 2, [=](int a, int b) {
    const uint8_t links = a / 4 == b / 4 ? 4 : 0;
    return device::Link{.pcie = PcieOf(a, b, count), .nvlinks = links};
  });
}

// HGX: all GPUs linked through NVSwitch.
inline Topology NvSwitch(int count) {
  return MakeTopology(count, 2, [=](int a, int b) {
    return device::Link{.pcie = PcieOf(a, b, count), .nvlinks = 18, .via_nvswitch = true};
  });
}

// The hybrid cube mesh of DGX-1 Volta; several blocks of eight for more GPUs.
inline Topology CubeMesh(int count) {
  static constexpr int kLinks[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0},
                                       {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
                                       {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                                       {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
  return MakeTopology(count, 2, [=](int a, int b) {
    const int links = a / 8 == b / 8 ? kLinks[a % 8][b % 8] : 0;
    return device::Link{.pcie = PcieOf(a, b, count), .nvlinks = static_cast<uint8_t>(links)};
  });
}

inline Topology PcieOnly(int count) {
  return MakeTopology(count, 2,
                      [=](int a, int b) { return device::Link{.pcie = PcieOf(a, b, count)}; });
}

// Random links, the hardest case.
inline Topology RandomLinks(int count, unsigned seed) {
  std::mt19937 random(seed);
  return MakeTopology(count, static_cast<int>(random() % 3), [&](int, int) {
    return device::Link{.pcie = static_cast<device::PcieLevel>(random() % 7),
                        .nvlinks = static_cast<uint8_t>(random() % 3 == 0 ? random() % 7 : 0)};
  });
}

inline Topology UnknownLinks(int count) {
  return MakeTopology(count, 2, [](int, int) { return device::Link(); });
}

}  // namespace tessera::placement::testing
