// SPDX-License-Identifier: Apache-2.0
#include "src/placement/demand.h"

#include <algorithm>
#include <functional>

namespace tessera::placement {

int Demand::gpus() const {
  int sum = 0;
  for (const GpuDemand& gpu_demand : gpu_demands) sum += gpu_demand.count;
  return sum;
}

int64_t Demand::milli() const {
  int64_t sum = 0;
  for (const GpuDemand& gpu_demand : gpu_demands)
    sum += gpu_demand.milli.count() * gpu_demand.count;
  return sum;
}

Status Validate(const Demand& demand) {
  if (demand.cpu_milli < 0 || demand.cpu_milli > kMaxRequestedCpuMilli) {
    return Error(Code::kInvalidArgument, "invalid request of {} thousandths of CPU: want 0 to {}",
                 demand.cpu_milli, kMaxRequestedCpuMilli);
  }
  if (demand.memory < Bytes(0) || demand.memory > kMaxRequestedMemory) {
    return Error(Code::kInvalidArgument, "invalid request of {} bytes of memory: want 0 to {}",
                 demand.memory.count(), kMaxRequestedMemory.count());
  }
  if (demand.gpu_demands.size() > kMaxGpuDemands) {
    return Error(Code::kInvalidArgument, "{} GPU containers in one pod: at most {} can be placed",
                 demand.gpu_demands.size(), kMaxGpuDemands);
  }
  int64_t gpus = 0;
  for (const GpuDemand& gpu_demand : demand.gpu_demands) {
    gpus += gpu_demand.count;
    if (gpu_demand.count < 1 || gpus > static_cast<int64_t>(kMaxGpusPerNode)) {
      return Error(Code::kInvalidArgument, "invalid request of {} GPUs: want 1 to {}",
                   gpu_demand.count < 1 ? gpu_demand.count : gpus, kMaxGpusPerNode);
    }
    if (gpu_demand.milli < MilliGpu(0) || gpu_demand.milli > kWholeGpu ||
        gpu_demand.bytes < Bytes(0) || gpu_demand.bytes > kMaxRequestedMemory) {
      return Error(Code::kInvalidArgument,
                   "invalid request of {} thousandths and {} bytes of one GPU: want 0 to {} "
                   "thousandths and 0 to {} bytes",
                   gpu_demand.milli.count(), gpu_demand.bytes.count(), kWholeGpu.count(),
                   kMaxRequestedMemory.count());
    }
  }
  if (demand.gpu_filter.size() > kMaxFilterGpus) {
    return Error(Code::kInvalidArgument,
                 "{} GPUs and slices named by UUID: at most {} are allowed, name models instead",
                 demand.gpu_filter.size(), kMaxFilterGpus);
  }
  const bool ascending = std::ranges::adjacent_find(demand.gpu_filter, std::greater_equal<>()) ==
                         demand.gpu_filter.end();
  if (!ascending || std::ranges::count(demand.gpu_filter, kNoGpu) > 0 ||
      (demand.gpu_filter_excludes && demand.gpu_filter.empty())) {
    return Error(Code::kInvalidArgument, "the GPU filter is empty or not in ascending order");
  }
  return {};
}

namespace {

void Mix(size_t& hash, uint64_t value) {
  value *= 0x9E3779B97F4A7C15u;
  hash = (hash ^ value ^ (value >> 32)) * 0xD6E8FEB86659FD93u;
}

}  // namespace

size_t DemandHash::operator()(const Demand& demand) const {
  size_t hash = 0x1234567;
  Mix(hash, static_cast<uint64_t>(demand.cpu_milli));
  Mix(hash, static_cast<uint64_t>(demand.memory.count()));
  for (const GpuDemand& gpu_demand : demand.gpu_demands) {
    Mix(hash, static_cast<uint64_t>(gpu_demand.count) << 32 |
                  static_cast<uint64_t>(gpu_demand.milli.count()) << 8 | gpu_demand.kind);
    Mix(hash, static_cast<uint64_t>(gpu_demand.bytes.count()));
  }
  if (demand.models.any()) Mix(hash, std::hash<ModelSet>()(demand.models));
  for (const GpuId gpu : demand.gpu_filter) Mix(hash, gpu);
  if (demand.gpu_filter_excludes) Mix(hash, 1);
  return hash ^ hash >> 29;
}

}  // namespace tessera::placement
