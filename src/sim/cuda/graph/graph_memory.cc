// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/graph/graph_memory.h"

#include <algorithm>
#include <vector>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kNodeAlign = 512;

bool ComesAfter(const GraphNodeTag& node, const GraphNodeTag* earlier) {
  std::set<const GraphNodeTag*> seen;
  std::vector<const GraphNodeTag*> to_visit = {&node};
  while (!to_visit.empty()) {
    const GraphNodeTag* next = to_visit.back();
    to_visit.pop_back();
    if (next == earlier) return true;
    if (seen.insert(next).second)
      to_visit.insert(to_visit.end(), next->dependencies.begin(), next->dependencies.end());
  }
  return false;
}

// Bytes for all allocations of a graph. An allocation reuses memory only if its node depends on the
// node that freed it.
uint64_t BackingBytes(const GraphTag& graph) {
  struct GraphPiece {
    uint64_t bytes;
    const GraphMemory* owner;
    const GraphNodeTag* freed_by;
  };
  std::vector<GraphPiece> pieces;
  for (const auto& node : graph.nodes) {
    const GraphMemory* memory = node->memory.get();
    if (node->type == GraphNodeType::kMemAlloc) {
      const uint64_t bytes = RoundUp(memory->bytes, kNodeAlign);
      const auto fits = [&](const GraphPiece& piece) {
        return piece.bytes >= bytes && piece.freed_by != nullptr &&
               ComesAfter(*node, piece.freed_by);
      };
      auto piece = std::ranges::find_if(pieces, fits);
      if (piece == pieces.end()) piece = pieces.insert(piece, GraphPiece{bytes, nullptr, nullptr});
      piece->owner = memory;
      piece->freed_by = nullptr;
    } else if (node->type == GraphNodeType::kMemFree) {
      const auto is_owned = [&](const GraphPiece& piece) { return piece.owner == memory; };
      const auto piece = std::ranges::find_if(pieces, is_owned);
      if (piece != pieces.end()) piece->freed_by = node.get();
    }
  }
  uint64_t sum = 0;
  for (const GraphPiece& piece : pieces) sum += piece.bytes;
  return RoundUp(sum, kBlockBytes);
}

}  // namespace

GraphMemory::~GraphMemory() { Driver::Get().graph_pools().Remove(this); }

Result GraphPools::Create(int device, uint64_t bytes, std::shared_ptr<GraphMemory>* memory) {
  if (bytes > driver_->FactsOf(device).memory_bytes) return Result::kOutOfMemory;
  const DevicePtr base = Driver::MapAddresses(RoundUp(bytes, kBlockBytes));
  if (base == 0) return Result::kOutOfMemory;
  *memory = std::make_shared<GraphMemory>();
  (*memory)->device = device;
  (*memory)->base = base;
  (*memory)->bytes = bytes;
  Allocation allocation;
  allocation.base = base;
  allocation.size = bytes;
  allocation.device = device;
  allocation.graph = memory->get();
  driver_->allocations()[base] = allocation;
  return Result::kSuccess;
}

void GraphPools::Remove(GraphMemory* memory) {
  driver_->allocations().erase(memory->base);
  driver_->UnmapLater(memory->base, RoundUp(memory->bytes, kBlockBytes));
}

std::shared_ptr<GraphMemory> GraphPools::Find(DevicePtr pointer) {
  auto found = driver_->allocations().find(pointer);
  if (found == driver_->allocations().end() || found->second.graph == nullptr) return nullptr;
  return found->second.graph->shared_from_this();
}

Result GraphPools::Instantiate(const GraphTag& graph, std::shared_ptr<GraphBacking>* backing) {
  if (!graph.has_memory()) return Result::kSuccess;
  auto created = std::make_shared<GraphBacking>();
  std::vector<GraphMemory*> memories;
  for (const auto& node : graph.nodes) {
    if (node->type != GraphNodeType::kMemAlloc) continue;
    GraphMemory* memory = node->memory.get();
    if (memory->backing != nullptr && memory->backing->has_instance) return Result::kNotSupported;
    if (!memories.empty() && memory->device != created->device) return Result::kNotSupported;
    created->device = memory->device;
    memories.push_back(memory);
  }
  for (GraphMemory* memory : memories) memory->backing = created;
  created->bytes = BackingBytes(graph);
  *backing = created;
  return Result::kSuccess;
}

Result GraphPools::AllocateMemory(const std::shared_ptr<GraphBacking>& backing) {
  if (backing == nullptr || backing->allocated) return Result::kSuccess;
  PoolBytes& pool = pools_[backing->device];
  const uint64_t reused_bytes = std::min(pool.idle, backing->bytes);
  const uint64_t new_bytes = backing->bytes - reused_bytes;
  const uint32_t gpu = driver_->GpuOf(Device(backing->device));
  if (new_bytes != 0 && driver_->slot().Charge(gpu, new_bytes) != 0) return Result::kOutOfMemory;
  pool.idle -= reused_bytes;
  pool.reserved += new_bytes;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  backing->allocated = true;
  allocated_.insert(backing);
  return Result::kSuccess;
}

void GraphPools::ReturnUnused(GraphBacking* backing) {
  if (!backing->allocated || backing->has_instance || backing->in_use_count != 0) return;
  backing->allocated = false;
  pools_[backing->device].idle += backing->bytes;
}

void GraphPools::EndInstance(GraphBacking* backing) {
  backing->has_instance = false;
  ReturnUnused(backing);
}

Result GraphPools::Launch(const GraphTag& graph, const std::shared_ptr<GraphBacking>& backing,
                          bool auto_free) {
  if (backing == nullptr) return Result::kSuccess;
  std::set<GraphMemory*> allocated, freed;
  for (const auto& node : graph.nodes) {
    GraphMemory* memory = node->memory.get();
    if (memory == nullptr) continue;
    if (node->type == GraphNodeType::kMemAlloc) {
      if (memory->in_use && !auto_free) return Result::kInvalidValue;
      allocated.insert(memory);
    } else {
      if (!memory->in_use && !allocated.contains(memory)) return Result::kInvalidValue;
      freed.insert(memory);
    }
  }
  for (GraphMemory* memory : allocated) {
    if (memory->in_use) (void)Free(memory);
  }
  const Result result = AllocateMemory(backing);
  if (result != Result::kSuccess) return result;
  for (GraphMemory* memory : freed) {
    if (memory->in_use) (void)Free(memory);
  }
  for (GraphMemory* memory : allocated) {
    if (freed.contains(memory)) continue;
    memory->in_use = true;
    in_use_[memory->base] = memory->shared_from_this();
    ++memory->backing->in_use_count;
    pools_[memory->device].used += memory->bytes;
  }
  PoolBytes& pool = pools_[backing->device];
  pool.used_high = std::max(pool.used_high, pool.used);
  return Result::kSuccess;
}

Result GraphPools::Free(GraphMemory* memory) {
  if (!memory->in_use) return Result::kInvalidValue;
  memory->in_use = false;
  pools_[memory->device].used -= memory->bytes;
  --memory->backing->in_use_count;
  ReturnUnused(memory->backing.get());
  in_use_.erase(memory->base);  // this may delete `memory`
  return Result::kSuccess;
}

// Memory of running launches, and of allocations that the program has not freed, is not trimmed.
void GraphPools::Trim(int device) {
  PoolBytes& pool = pools_[device];
  std::erase_if(allocated_, [&](const std::shared_ptr<GraphBacking>& backing) {
    if (backing->device != device || !backing->allocated) return !backing->allocated;
    if (backing->in_use_count != 0 ||
        (backing->last_launch_end != nullptr && !backing->last_launch_end->done))
      return false;
    backing->allocated = false;
    pool.idle += backing->bytes;
    return true;
  });
  if (pool.idle != 0) driver_->slot().Uncharge(driver_->GpuOf(Device(device)), pool.idle);
  pool.reserved -= pool.idle;
  pool.idle = 0;
}

void GraphPools::EndDevice(int device) {
  std::vector<std::shared_ptr<GraphMemory>> in_use;
  for (const auto& [base, memory] : in_use_) {
    if (memory->device == device) in_use.push_back(memory);
  }
  for (const auto& memory : in_use) (void)Free(memory.get());
  for (const auto& backing : allocated_) {
    if (backing->device == device) backing->last_launch_end = nullptr;
  }
  Trim(device);
}

CUDA_EXPORT Result cuGraphAddMemAllocNode(GraphNode* node, Graph graph, const GraphNode* from,
                                          size_t count, MemAllocNodeParameters* parameters) {
  CUDA_ENTER(ContextCall, call);
  if (parameters == nullptr || parameters->bytes == 0) return Result::kInvalidValue;
  if (parameters->pool.location.type != kLocationDevice) return Result::kNotSupported;
  if (!call->IsDevice(parameters->pool.location.id)) return Result::kInvalidDevice;
  auto created = NewNode(GraphNodeType::kMemAlloc);
  Result result =
      call->graph_pools().Create(parameters->pool.location.id, parameters->bytes, &created->memory);
  if (result != Result::kSuccess) return result;
  const DevicePtr pointer = created->memory->base;
  result = call->graphs().AddNode(node, graph, from, count, std::move(created));
  if (result == Result::kSuccess) parameters->pointer = pointer;
  return result;
}

CUDA_EXPORT Result cuGraphAddMemFreeNode(GraphNode* node, Graph graph, const GraphNode* from,
                                         size_t count, DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  auto created = NewNode(GraphNodeType::kMemFree);
  created->memory = call->graph_pools().Find(pointer);
  if (created->memory == nullptr) return Result::kInvalidValue;
  return call->graphs().AddNode(node, graph, from, count, std::move(created));
}

CUDA_EXPORT Result cuGraphMemAllocNodeGetParams(GraphNode node,
                                                MemAllocNodeParameters* parameters) {
  CUDA_ENTER(Call, call);
  if (parameters == nullptr || !call->graphs().IsNode(node) ||
      node->type != GraphNodeType::kMemAlloc) {
    return Result::kInvalidValue;
  }
  *parameters = {.pool = {.alloc_type = 1, .location = {kLocationDevice, node->memory->device}},
                 .bytes = node->memory->bytes,
                 .pointer = node->memory->base};
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphMemFreeNodeGetParams(GraphNode node, DevicePtr* pointer) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node) || node->type != GraphNodeType::kMemFree) {
    return Result::kInvalidValue;
  }
  return Put(pointer, node->memory->base);
}

CUDA_EXPORT Result cuDeviceGetGraphMemAttribute(Device device, int attribute, void* value) {
  CUDA_ENTER(DeviceCall, call, device);
  const GraphPools::PoolBytes& pool = call->graph_pools().PoolOf(device);
  auto* number = static_cast<uint64_t*>(value);
  switch (attribute) {
    case kGraphMemUsed:
      return Put(number, pool.used);
    case kGraphMemUsedHigh:
      return Put(number, pool.used_high);
    case kGraphMemReserved:
      return Put(number, pool.reserved);
    case kGraphMemReservedHigh:
      return Put(number, pool.reserved_high);
    default:
      return Result::kInvalidValue;
  }
}

CUDA_EXPORT Result cuDeviceSetGraphMemAttribute(Device device, int attribute, void* value) {
  CUDA_ENTER(DeviceCall, call, device);
  if (value == nullptr || *static_cast<uint64_t*>(value) != 0) return Result::kInvalidValue;
  GraphPools::PoolBytes& pool = call->graph_pools().PoolOf(device);
  if (attribute == kGraphMemUsedHigh) {
    pool.used_high = pool.used;
  } else if (attribute == kGraphMemReservedHigh) {
    pool.reserved_high = pool.reserved;
  } else {
    return Result::kInvalidValue;
  }
  return Result::kSuccess;
}

CUDA_EXPORT Result cuDeviceGraphMemTrim(Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  call->graph_pools().Trim(device);
  return Result::kSuccess;
}

}  // namespace tessera::cuda
