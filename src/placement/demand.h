// SPDX-License-Identifier: Apache-2.0
// What one pod asks of the node that it will run on, in the form in which placement computes: host
// resources, GPU asks and the models that will do. Dialects, containers and names are behind it
// (src/device/request.h); two pods with equal demands are the same to every policy.
//
// Threads: values.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::placement {

// GPU models and MIG profiles, numbered by the Cluster that was asked first about them.
using ModelId = uint16_t;
using KindId = uint8_t;
inline constexpr size_t kMaxModels = 256;
inline constexpr ModelId kNoModel = 0;     // of a node without GPUs, or of a GPU that does not say
inline constexpr KindId kWholeDevice = 0;  // a GPU that is not cut up; others are MIG profiles
using ModelSet = std::bitset<kMaxModels>;

// GPUs and MIG slices, numbered by the Cluster as nodes bring them.
using GpuId = uint32_t;
inline constexpr GpuId kNoGpu = 0;                // one without a UUID
inline constexpr GpuId kUnknownGpu = UINT32_MAX;  // what a pod names and no node has

// As many GPUs as one node annotation may hold; a mask of GPUs fits one word.
inline constexpr size_t kMaxGpusPerNode = 64;
// GPU containers of one pod that are placed apart from each other.
inline constexpr size_t kMaxAsks = 16;
// GPUs that one demand may name: bounds what thousands of idle demands keep.
inline constexpr size_t kMaxNamedGpus = 1024;

// `count` different GPUs, on each of them `milli` and `bytes`. A whole GPU is one that nobody else
// uses: milli is 1000, and its memory goes with it, so `bytes` then only says how much it must
// have.
struct GpuAsk {
  int count = 1;
  MilliGpu milli;
  Bytes bytes;
  KindId kind = kWholeDevice;

  bool whole() const { return milli == kWholeGpu; }
  bool operator==(const GpuAsk&) const = default;
};

struct Demand {
  int64_t cpu_milli = 0;
  Bytes memory;
  std::vector<GpuAsk> asks;  // empty for a pod without GPUs; each ask may share GPUs with another
  ModelSet models;           // allowed models; empty: any model
  // Ascending. Allowed GPUs; with `avoid_named`, forbidden GPUs. Empty: any GPU.
  std::vector<GpuId> named;
  bool avoid_named = false;

  bool operator==(const Demand&) const = default;

  // GPUs and thousandths of all asks.
  int gpus() const;
  int64_t milli() const;
  // Any GPU will do that has room.
  bool allows_any() const { return models.none() && named.empty(); }
  bool AllowsModel(ModelId model) const { return models.none() || models.test(model); }
  bool AllowsGpu(GpuId gpu) const {
    return named.empty() || std::binary_search(named.begin(), named.end(), gpu) != avoid_named;
  }
};

// INVALID_ARGUMENT for what no pod can mean: negative numbers, no GPU in an ask, more than 1000
// thousandths, more asks or GPUs than the limits above, named GPUs out of order.
Status Validate(const Demand& demand);

struct DemandHash {
  size_t operator()(const Demand& demand) const;
};

// GPUs of one node, bit i for its i-th, for each ask of a demand in its order.
struct Pick {
  std::array<uint64_t, kMaxAsks> masks{};

  uint64_t all() const {
    uint64_t sum = 0;
    for (const uint64_t mask : masks) sum |= mask;
    return sum;
  }
  bool operator==(const Pick&) const = default;
};

}  // namespace tessera::placement
