// SPDX-License-Identifier: Apache-2.0
// The account of a cluster as commands show it: by node, by GPU and who holds it, by pod. Reads a
// ClusterLedger and decides nothing.
//
// Threads: as the ledger. A View is good until its ledger changes. Cost: one pass over all pods.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/ledger/ledger.h"

namespace tessera::cli {

// What the ledger does not keep of a Node.
struct NodeFacts {
  std::string internal_ip;         // "" where it is not known
  std::optional<int64_t> gpu_mem;  // allocatable aliyun.com/gpu-mem
};
using FactsOf = std::function<NodeFacts(const std::string& node)>;

// What one pod has of one device: of a whole device compute is 1000.
struct Holding {
  const ledger::PodEntry* pod = nullptr;
  device::Share share;

  bool whole() const { return share.compute == kWholeGpu; }
};

// A GPU, or a MIG slice in its place.
struct DeviceView {
  std::string_view uuid;
  std::string name;  // "3": its index; "3:7": slice 7 of it; "-": a GPU that is gone
  const device::Gpu* gpu = nullptr;  // null where it is gone but held
  const device::MigSlice* slice = nullptr;
  Bytes memory;
  Bytes used;
  int64_t used_milli = 0;
  std::string unhealthy;         // why; "" while it is offered
  std::string suspect;           // what was reported of a GPU that is offered all the same
  std::vector<Holding> holders;  // by namespace and name

  bool idle() const { return holders.empty(); }
};

struct NodeView {
  const ledger::NodeEntry* entry = nullptr;
  NodeFacts facts;
  std::string model;  // of all its GPUs, short; "mixed"
  std::vector<DeviceView> devices;
  std::vector<const ledger::PodEntry*> pods;  // that ask for GPUs; by namespace and name

  size_t idle() const;  // that are well, too
  size_t unhealthy() const;
  int64_t used_milli() const;
  Bytes memory() const;
  Bytes used() const;
};

class View {
 public:
  View(const ledger::ClusterLedger& ledger, FactsOf facts);

  const ledger::ClusterLedger& ledger() const { return ledger_; }
  // Nodes with GPUs, or with something to say about why they have none; by name.
  std::vector<NodeView> Nodes() const;
  // NOT_FOUND names those that are spelled alike.
  Result<NodeView> Node(std::string_view name) const;
  // Pods that ask for GPUs, by namespace and name; "" means all namespaces.
  std::vector<const ledger::PodEntry*> Pods(std::string_view ns) const;
  // "3", "0,1", "3:7": the devices that a pod has.
  std::string DeviceNames(const ledger::PodEntry& pod) const;
  // Of each of its devices.
  std::vector<DeviceView> DevicesOf(const ledger::PodEntry& pod) const;

 private:
  NodeView Describe(const ledger::NodeEntry& entry) const;
  DeviceView Describe(const ledger::NodeEntry& entry, size_t position) const;

  const ledger::ClusterLedger& ledger_;
  const FactsOf facts_;
  std::unordered_map<std::string_view, std::vector<Holding>> holders_;               // by UUID
  std::unordered_map<std::string_view, std::vector<const ledger::PodEntry*>> pods_;  // by node
};

// What 1 of aliyun.com/gpu-mem is in this cluster: MiB where a node offers more of them than its
// GPUs have GiB, by the first node that offers any. Without any: GiB.
device::MemoryUnit MemoryUnitOf(const ledger::ClusterLedger& ledger, const FactsOf& facts);

// Up to three of `names` that are spelled like `wanted`, for messages: ": did you mean a, b?", or
// "".
std::string DidYouMean(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace tessera::cli
