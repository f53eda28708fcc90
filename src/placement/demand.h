// SPDX-License-Identifier: Apache-2.0
// What one pod needs from a node, in the form that placement computes with: host resources, GPU
// demands and allowed models. It does not say which containers or Kubernetes resources requested
// the GPUs (src/device/request.h does), so a policy cannot distinguish pods with equal demands.
//
// Threads: demands and picks are values; each thread may use its own copy.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::placement {

// GPU models and MIG profiles, numbered by the Cluster in the order in which it first sees them.
using ModelId = uint16_t;
using KindId = uint8_t;
inline constexpr size_t kMaxModels = 256;
inline constexpr ModelId kNoModel = 0;      // node without GPUs, or GPU of unknown model
inline constexpr KindId kNoMigProfile = 0;  // a GPU that is not divided by MIG
using ModelSet = std::bitset<kMaxModels>;

// GPUs and MIG slices, numbered by the Cluster when it adds their node.
using GpuId = uint32_t;
inline constexpr GpuId kNoGpu = 0;                // a GPU without a UUID
inline constexpr GpuId kUnknownGpu = UINT32_MAX;  // a UUID that a pod names but no node has

// The most GPUs that one node annotation may hold; a mask of GPUs fits in one word.
inline constexpr size_t kMaxGpusPerNode = 64;
// The most GPU containers of one pod that get separate GPUs.
inline constexpr size_t kMaxGpuDemands = 16;
// The most GPUs that one demand may list; bounds the memory that thousands of idle demands hold.
inline constexpr size_t kMaxFilterGpus = 1024;
// The most CPU, and the most memory of the host or of one GPU, that a demand may request. No node
// has so much, and sums over thousands of pods fit in 64 bits.
inline constexpr int64_t kMaxRequestedCpuMilli = int64_t{1} << 40;
inline constexpr Bytes kMaxRequestedMemory = GiB(1 << 20);

// `count` different GPUs, with `milli` and `bytes` on each of them. A whole GPU (milli = 1000) is
// shared with no other pod and includes all its memory. `bytes` is then the least memory that the
// GPU must have.
struct GpuDemand {
  int count = 1;
  MilliGpu milli;
  Bytes bytes;
  KindId kind = kNoMigProfile;

  bool whole() const { return milli == kWholeGpu; }
  bool operator==(const GpuDemand&) const = default;
};

struct Demand {
  int64_t cpu_milli = 0;
  Bytes memory;
  std::vector<GpuDemand> gpu_demands;  // empty for a pod without GPUs; two demands may share a GPU
  ModelSet models;                     // allowed models; empty: any model
  // GPUs that the demand allows or, with `gpu_filter_excludes`, forbids. Ascending; empty: any GPU.
  std::vector<GpuId> gpu_filter;
  bool gpu_filter_excludes = false;

  bool operator==(const Demand&) const = default;

  // Number of GPUs, and thousandths, summed over all GPU demands.
  int gpus() const;
  int64_t milli() const;
  bool allows_every_gpu() const { return models.none() && gpu_filter.empty(); }
  bool AllowsModel(ModelId model) const { return models.none() || models.test(model); }
  bool AllowsGpu(GpuId gpu) const {
    return gpu_filter.empty() ||
           std::binary_search(gpu_filter.begin(), gpu_filter.end(), gpu) != gpu_filter_excludes;
  }
};

// INVALID_ARGUMENT: negative numbers, a GPU demand without GPUs, more than 1000 thousandths,
// amounts or counts above the limits in this file, a GPU filter that is not ascending.
Status Validate(const Demand& demand);

struct DemandHash {
  size_t operator()(const Demand& demand) const;
};

// A mask of GPUs for each GPU demand of a pod; 0 if not set. Almost all pods have at most one GPU
// demand, so all masks but the first are allocated when one of them is first written.
class GpuMasks {
 public:
  GpuMasks() = default;
  GpuMasks(uint64_t first) : first_(first) {}  // NOLINT(google-explicit-constructor)
  GpuMasks(const GpuMasks& other) { *this = other; }
  GpuMasks(GpuMasks&&) = default;
  GpuMasks& operator=(const GpuMasks& other) {
    first_ = other.first_;
    others_ = other.others_ ? std::make_unique<Others>(*other.others_) : nullptr;
    return *this;
  }
  GpuMasks& operator=(GpuMasks&&) = default;

  uint64_t operator[](size_t n) const { return n == 0 ? first_ : others_ ? (*others_)[n - 1] : 0; }
  uint64_t& operator[](size_t n) {
    if (n == 0) return first_;
    if (!others_) others_ = std::make_unique<Others>();
    return (*others_)[n - 1];
  }
  uint64_t all() const {
    uint64_t sum = first_;
    if (others_) {
      for (const uint64_t mask : *others_) sum |= mask;
    }
    return sum;
  }
  bool operator==(const GpuMasks& other) const {
    for (size_t n = 0; n < kMaxGpuDemands; ++n) {
      if ((*this)[n] != other[n]) return false;
    }
    return true;
  }

 private:
  using Others = std::array<uint64_t, kMaxGpuDemands - 1>;

  uint64_t first_ = 0;
  std::unique_ptr<Others> others_;
};

// The GPUs for each GPU demand on one node: a mask for each demand, with bit i for GPU i.
struct Pick {
  GpuMasks masks;

  uint64_t all() const { return masks.all(); }
  bool operator==(const Pick&) const = default;
};

}  // namespace tessera::placement
