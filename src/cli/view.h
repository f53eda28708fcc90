// SPDX-License-Identifier: Apache-2.0
// A ClusterLedger prepared for output: by node, by GPU with its holders, by pod. Decides nothing.
//
// Threads: the ledger's. A ClusterView is valid until its ledger changes. Cost: one pass over all
// pods.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/ledger/ledger.h"

namespace tessera::cli {

// A pod's share of one device; compute is 1000 for a whole device.
struct PodShare {
  const ledger::PodEntry* pod = nullptr;
  device::Share share;

  bool is_whole() const { return share.compute == kWholeGpu; }
};

// A GPU, or one of its MIG slices.
struct DeviceView {
  std::string uuid;
  // "3": the GPU's index; "3:7": its MIG slice 7; "-": a GPU that the node no longer has.
  std::string name;
  const device::Gpu* gpu = nullptr;  // null: the node no longer has it, but a pod still holds it
  const device::MigSlice* slice = nullptr;
  Bytes memory;
  Bytes used_memory;
  int64_t used_milli = 0;
  std::string unhealthy_reason;   // "" if the device is offered
  std::string suspect_reason;     // a reported problem of a GPU that is still offered
  std::vector<PodShare> holders;  // by namespace and name

  bool idle() const { return holders.empty(); }
};

struct NodeRow {
  const ledger::NodeEntry* entry = nullptr;
  std::string model;  // short name of its GPUs' model, or "mixed"
  std::vector<DeviceView> devices;
  std::vector<const ledger::PodEntry*> pods;  // with GPU requests; by namespace and name

  size_t idle_devices() const;  // idle and healthy
  size_t unhealthy_devices() const;
  int64_t used_milli() const;
  Bytes memory() const;
  Bytes used_memory() const;
};

class ClusterView {
 public:
  explicit ClusterView(const ledger::ClusterLedger& ledger);

  const ledger::ClusterLedger& ledger() const { return ledger_; }
  // Nodes with GPUs, or with a reported reason why they have none; by name.
  std::vector<NodeRow> Nodes() const;
  // NOT_FOUND with similar names.
  Result<NodeRow> Node(std::string_view name) const;
  // Pods that request GPUs, by namespace and name; all namespaces if `ns` is "".
  std::vector<const ledger::PodEntry*> Pods(std::string_view ns) const;
  // The view of each of the pod's devices.
  std::vector<DeviceView> DevicesOf(const ledger::PodEntry& pod) const;

 private:
  NodeRow Describe(const ledger::NodeEntry& entry) const;
  DeviceView Describe(const ledger::NodeEntry& entry, size_t position) const;

  const ledger::ClusterLedger& ledger_;
  std::unordered_map<std::string, std::vector<PodShare>> holders_;                   // by UUID
  std::unordered_map<std::string_view, std::vector<const ledger::PodEntry*>> pods_;  // by node
};

// ": did you mean a, b?" with up to three of `names` that are similar to `wanted`, or "".
std::string DidYouMean(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace tessera::cli
