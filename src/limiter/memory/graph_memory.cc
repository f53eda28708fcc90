// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/memory/graph_memory.h"

#include <sys/mman.h>

#include "src/limiter/loader/driver.h"
#include "src/limiter/process/process.h"
#include "src/limiter/tables/blocks.h"

namespace tessera::limiter {
namespace {

using cuda::DevicePtr;
using cuda::Graph;
using cuda::GraphExec;
using cuda::GraphNode;
using cuda::GraphNodeType;
using cuda::Result;

// Handles are aligned, so the low bits have room for a GPU's index.
uint64_t Key(GraphExec exec, int gpu) { return reinterpret_cast<uintptr_t>(exec) | uint64_t(gpu); }
static_assert(kMaxGpus <= alignof(max_align_t));

// The needs of one graph, by index of the GPU.
struct NeedsByGpu {
  GraphNeed needs[kMaxGpus] = {};
  bool HasNeed(uint32_t gpu) const { return needs[gpu].max_bytes != 0; }
  int PoolIndex(uint32_t gpu) const {
    return Process::Get().pools().Find(Pools::GraphMemoryOf(needs[gpu].device));
  }
};

// All nodes of a graph, in memory from mmap instead of the program's allocator.
class GraphNodes {
 public:
  explicit GraphNodes(Graph graph) {
    if (driver.cuGraphGetNodes(graph, nullptr, &count_) != Result::kSuccess || count_ == 0) return;
    bytes_ = count_ * sizeof(GraphNode);
    void* memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    nodes_ = static_cast<GraphNode*>(memory);
    if (driver.cuGraphGetNodes(graph, nodes_, &count_) != Result::kSuccess) count_ = 0;
  }
  ~GraphNodes() {
    if (nodes_ != nullptr) ::munmap(nodes_, bytes_);
  }
  GraphNodes(const GraphNodes&) = delete;
  GraphNodes& operator=(const GraphNodes&) = delete;

  GraphNode* begin() const { return nodes_; }
  GraphNode* end() const { return nodes_ == nullptr ? nullptr : nodes_ + count_; }

 private:
  GraphNode* nodes_ = nullptr;
  size_t count_ = 0;
  size_t bytes_ = 0;
};

// Computes needs from the nodes in their order.
class NeedsCalculator {
 public:
  explicit NeedsCalculator(NeedsByGpu* by_gpu) : by_gpu_(by_gpu) {}
  ~NeedsCalculator() { allocations_.Clear(); }
  NeedsCalculator(const NeedsCalculator&) = delete;
  NeedsCalculator& operator=(const NeedsCalculator&) = delete;

  void CountAllocation(GraphNode node) {
    cuda::MemAllocNodeParameters parameters = {};
    if (driver.cuGraphMemAllocNodeGetParams(node, &parameters) != Result::kSuccess) return;
    const cuda::MemLocation& location = parameters.pool.location;
    const int gpu = location.type == cuda::kLocationDevice ? Process::Get().GpuOf(location.id) : -1;
    if (gpu < 0) return;
    const uint64_t bytes = (parameters.bytes + kAlign - 1) / kAlign * kAlign;
    bool added = false;
    auto* allocation = allocations_.Add(parameters.pointer, &added);
    if (allocation != nullptr) allocation->value = {bytes, gpu};
    GraphNeed& need = by_gpu_->needs[gpu];
    need.device = location.id;
    need.max_bytes += bytes;
    allocated_bytes_[gpu] += bytes;
    if (allocated_bytes_[gpu] > need.min_bytes) need.min_bytes = allocated_bytes_[gpu];
  }

  // A node that frees memory of another graph has no effect.
  void CountFree(GraphNode node) {
    DevicePtr pointer = 0;
    if (driver.cuGraphMemFreeNodeGetParams(node, &pointer) != Result::kSuccess) return;
    auto* allocation = allocations_.Find(pointer);
    if (allocation == nullptr) return;
    allocated_bytes_[allocation->value.gpu] -= allocation->value.bytes;
    allocations_.Erase(allocation);
  }

 private:
  static constexpr uint64_t kAlign = 512;
  struct NodeMemory {
    uint64_t bytes;
    int gpu;
  };

  NeedsByGpu* const by_gpu_;
  uint64_t allocated_bytes_[kMaxGpus] = {};
  Table<NodeMemory> allocations_ = {};
};

// False: the graph has no allocation nodes on a GPU in the limits.
bool ComputeNeeds(Graph graph, NeedsByGpu* by_gpu) {
  NeedsCalculator calculator(by_gpu);
  for (GraphNode node : GraphNodes(graph)) {
    GraphNodeType type{};
    if (driver.cuGraphNodeGetType(node, &type) != Result::kSuccess) continue;
    if (type == GraphNodeType::kMemAlloc) calculator.CountAllocation(node);
    if (type == GraphNodeType::kMemFree) calculator.CountFree(node);
  }
  bool has_needs = false;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) has_needs |= by_gpu->HasNeed(gpu);
  return has_needs;
}

bool FindNeeds(GraphExec exec, NeedsByGpu* by_gpu) {
  bool has_needs = false;
  for (uint32_t gpu = 0; gpu < Process::Get().memory_budget().limits().gpu_count && gpu < kMaxGpus;
       ++gpu) {
    has_needs |= Process::Get().graph_needs().Find(exec, int(gpu), &by_gpu->needs[gpu]);
  }
  return has_needs;
}

void RefreshPools(const NeedsByGpu& by_gpu) {
  Process& process = Process::Get();
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (by_gpu.HasNeed(gpu))
      process.pools().Refresh(by_gpu.PoolIndex(gpu), &process.memory_budget());
  }
}

// The reservation of a graph on all of its GPUs.
class Reservation {
 public:
  ~Reservation() {
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      if (bytes_[gpu] != 0) Process::Get().memory_budget().Cancel(int(gpu), bytes_[gpu]);
    }
  }
  // False: the reservation exceeds a limit; the refusal is reported.
  bool Reserve(const NeedsByGpu& by_gpu) {
    Process& process = Process::Get();
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      if (!by_gpu.HasNeed(gpu)) continue;
      uint64_t bytes = RoundToBlocks(by_gpu.needs[gpu].max_bytes);
      if (!process.memory_budget().Reserve(int(gpu), bytes)) {
        bytes = RoundToBlocks(by_gpu.needs[gpu].min_bytes);
        if (!process.Reserve(int(gpu), bytes)) return false;
      }
      bytes_[gpu] = bytes;
    }
    return true;
  }

 private:
  uint64_t bytes_[kMaxGpus] = {};
};

bool ExceedsLimit(int gpu) {
  const uint64_t limit = Process::Get().LimitOf(gpu);
  return limit != 0 && Process::Get().memory_budget().HeldBytes(gpu) > limit;
}

// Reserves the needs of the graph around a driver call that may allocate them. If the limit is
// exceeded afterwards, `undo` reverts the call.
template <typename Call, typename Undo>
Result CallWithReservation(const NeedsByGpu& by_gpu, Call call, Undo undo) {
  Process& process = Process::Get();
  Result result;
  {
    Reservation reservation;
    if (!reservation.Reserve(by_gpu)) return Result::kOutOfMemory;
    result = call();
    RefreshPools(by_gpu);
  }
  if (result != Result::kSuccess) return result;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (!by_gpu.HasNeed(gpu) || !ExceedsLimit(int(gpu))) continue;
    undo();
    (void)process.pools().Trim(by_gpu.PoolIndex(gpu), 0, &process.memory_budget());
    process.Refuse(int(gpu), RoundToBlocks(by_gpu.needs[gpu].max_bytes));
    return Result::kOutOfMemory;
  }
  return Result::kSuccess;
}

// The per-thread default streams of all threads have the same handle, so each thread gets an id.
uintptr_t IdOf(LaunchStream stream) {
  static thread_local char per_thread;
  const auto handle = reinterpret_cast<uintptr_t>(stream.handle);
  if (handle == cuda::kStreamPerThread || (handle == 0 && stream.per_thread)) {
    return reinterpret_cast<uintptr_t>(&per_thread);
  }
  return handle == 0 ? cuda::kStreamLegacy : handle;
}

bool IsUploaded(const NeedsByGpu& by_gpu, uintptr_t stream) {
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    const GraphNeed& need = by_gpu.needs[gpu];
    if (by_gpu.HasNeed(gpu) &&
        (need.stream != stream ||
         need.trims != Process::Get().pools().TrimCount(by_gpu.PoolIndex(gpu)))) {
      return false;
    }
  }
  return true;
}

Result Upload(GraphExec exec, NeedsByGpu* by_gpu, LaunchStream stream) {
  Process& process = Process::Get();
  // The number of trims is read before the upload: if another thread trims meanwhile, the next
  // launch uploads the graph again.
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (by_gpu->HasNeed(gpu))
      by_gpu->needs[gpu].trims = process.pools().TrimCount(by_gpu->PoolIndex(gpu));
  }
  const auto upload = [&] {
    const RelaxedCapture relaxed;
    return stream.per_thread ? driver.cuGraphUpload_ptsz(exec, stream.handle)
                             : driver.cuGraphUpload(exec, stream.handle);
  };
  const Result result = CallWithReservation(*by_gpu, upload, [] {});
  // The launch reports any other error of the upload.
  if (result != Result::kSuccess) {
    return result == Result::kOutOfMemory ? result : Result::kSuccess;
  }
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (!by_gpu->HasNeed(gpu)) continue;
    process.graph_needs().RecordUpload(exec, int(gpu), IdOf(stream), by_gpu->needs[gpu].trims);
  }
  return Result::kSuccess;
}

// The driver allocates memory in this call only if the flags request an upload (`uploads`).
template <typename Call>
Result Instantiate(GraphExec* exec, Graph graph, bool uploads, Call call) {
  Process& process = Process::Get();
  NeedsByGpu by_gpu;
  if (exec == nullptr || !process.IsLimiting() || !ComputeNeeds(graph, &by_gpu)) return call();
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (!by_gpu.HasNeed(gpu)) continue;
    if (process.AddPool(Pools::GraphMemoryOf(by_gpu.needs[gpu].device), int(gpu)) < 0) {
      return Result::kOutOfMemory;
    }
  }
  const auto undo = [&] {
    process.graph_needs().Remove(*exec);
    driver.cuGraphExecDestroy(*exec);
    *exec = nullptr;
  };
  const Result result = uploads ? CallWithReservation(by_gpu, call, undo) : call();
  if (result != Result::kSuccess) return result;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (!by_gpu.HasNeed(gpu) || process.graph_needs().Add(*exec, int(gpu), by_gpu.needs[gpu]))
      continue;
    undo();
    return Result::kOutOfMemory;
  }
  RefreshPools(by_gpu);
  return Result::kSuccess;
}

}  // namespace

bool GraphNeeds::Add(GraphExec exec, int gpu, const GraphNeed& need) {
  const SpinGuard lock(&lock_);
  bool added = false;
  auto* entry = needs_.Add(Key(exec, gpu), &added);
  if (entry == nullptr) return false;
  entry->value = need;
  if (added) count_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool GraphNeeds::Find(GraphExec exec, int gpu, GraphNeed* need) {
  const SpinGuard lock(&lock_);
  auto* entry = needs_.Find(Key(exec, gpu));
  if (entry != nullptr) *need = entry->value;
  return entry != nullptr;
}

void GraphNeeds::RecordUpload(GraphExec exec, int gpu, uintptr_t stream, uint32_t trims) {
  const SpinGuard lock(&lock_);
  auto* entry = needs_.Find(Key(exec, gpu));
  if (entry == nullptr) return;
  entry->value.stream = stream;
  entry->value.trims = trims;
}

void GraphNeeds::Remove(GraphExec exec) {
  if (!HasEntries()) return;
  const SpinGuard lock(&lock_);
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    auto* entry = needs_.Find(Key(exec, int(gpu)));
    if (entry == nullptr) continue;
    needs_.Erase(entry);
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void GraphNeeds::Reset() {
  lock_.Reset();
  needs_.Clear();
  count_.store(0);
}

Result PrepareGraph(GraphExec exec, LaunchStream stream) {
  NeedsByGpu by_gpu;
  if (!Process::Get().IsLimiting() || !FindNeeds(exec, &by_gpu)) return Result::kSuccess;
  if (IsUploaded(by_gpu, IdOf(stream)) || Throttle::Get().IsCaptured(stream)) {
    return Result::kSuccess;
  }
  return Upload(exec, &by_gpu, stream);
}

void RefreshGraphMemory(GraphExec exec) {
  NeedsByGpu by_gpu;
  if (Process::Get().IsLimiting() && FindNeeds(exec, &by_gpu)) RefreshPools(by_gpu);
}

}  // namespace tessera::limiter

namespace tessera::cuda {

using limiter::driver;
using limiter::Process;

LIMITER_EXPORT Result cuGraphInstantiate(GraphExec* exec, Graph graph, GraphNode* error_node,
                                         char* log, size_t bytes) {
  return limiter::Instantiate(exec, graph, /*uploads=*/false, [&] {
    return driver.cuGraphInstantiate(exec, graph, error_node, log, bytes);
  });
}
LIMITER_EXPORT Result cuGraphInstantiate_v2(GraphExec* exec, Graph graph, GraphNode* error_node,
                                            char* log, size_t bytes) {
  return limiter::Instantiate(exec, graph, /*uploads=*/false, [&] {
    return driver.cuGraphInstantiate_v2(exec, graph, error_node, log, bytes);
  });
}
LIMITER_EXPORT Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph,
                                                  unsigned long long flags) {
  return limiter::Instantiate(exec, graph, (flags & kInstantiateUpload) != 0, [&] {
    return driver.cuGraphInstantiateWithFlags(exec, graph, flags);
  });
}
LIMITER_EXPORT Result cuGraphInstantiateWithParams(GraphExec* exec, Graph graph,
                                                   GraphInstantiateParameters* parameters) {
  const bool uploads = parameters != nullptr && (parameters->flags & kInstantiateUpload) != 0;
  return limiter::Instantiate(exec, graph, uploads, [&] {
    return driver.cuGraphInstantiateWithParams(exec, graph, parameters);
  });
}
LIMITER_EXPORT Result cuGraphInstantiateWithParams_ptsz(GraphExec* exec, Graph graph,
                                                        GraphInstantiateParameters* parameters) {
  const bool uploads = parameters != nullptr && (parameters->flags & kInstantiateUpload) != 0;
  return limiter::Instantiate(exec, graph, uploads, [&] {
    return driver.cuGraphInstantiateWithParams_ptsz(exec, graph, parameters);
  });
}

// The limiter uploads first, with a reservation; the program's own upload then allocates nothing.
LIMITER_EXPORT Result cuGraphUpload(GraphExec exec, Stream stream) {
  if (Process::Get().graph_needs().HasEntries()) {
    const Result result = limiter::PrepareGraph(exec, {.handle = stream});
    if (result != Result::kSuccess) return result;
  }
  return driver.cuGraphUpload(exec, stream);
}
LIMITER_EXPORT Result cuGraphUpload_ptsz(GraphExec exec, Stream stream) {
  if (Process::Get().graph_needs().HasEntries()) {
    const Result result = limiter::PrepareGraph(exec, {.handle = stream, .per_thread = true});
    if (result != Result::kSuccess) return result;
  }
  return driver.cuGraphUpload_ptsz(exec, stream);
}

LIMITER_EXPORT Result cuDeviceGraphMemTrim(Device device) {
  Process& process = Process::Get();
  const int pool = process.FindPool(limiter::Pools::GraphMemoryOf(device));
  if (pool < 0) return driver.cuDeviceGraphMemTrim(device);
  return process.pools().Trim(pool, 0, &process.memory_budget());
}

}  // namespace tessera::cuda
