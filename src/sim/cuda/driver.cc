// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/driver.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "src/sim/cuda/callbacks.h"
#include "src/sim/cuda/visible.h"
#include "src/sim/futex.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kSmallAlign = 512;  // cuMemAlloc aligns like this at least
constexpr unsigned kStreamNonBlocking = 1;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The folder of the state that this library belongs to.
std::string StateDir() {
  static const char here = 0;
  return sim::State::FindDir(&here);
}

bool Exists(const char* device) {
  return access(sim::State::DevicePath(device).c_str(), F_OK) == 0;
}

}  // namespace

Driver& Driver::Get() {
  alignas(Driver) static char place[sizeof(Driver)];
  static Driver* driver = new (place) Driver();
  return *driver;
}

bool Driver::forked() const { return pid_ != getpid(); }

unsigned Driver::CudaVersion() {
  const unsigned known = cuda_version_.load(std::memory_order_relaxed);
  if (known != kNoNode) return known;
  sim::State state;
  const std::string dir = StateDir();
  if (dir.empty() || state.Open(dir) != 0) return kNoNode;
  cuda_version_ = state.file().cuda_version;
  return cuda_version_;
}

Result Driver::Init(unsigned flags) {
  if (flags != 0) return Result::kInvalidValue;
  std::lock_guard lock(init_mutex_);
  if (initialised_) return forked() ? Result::kNotInitialized : Result::kSuccess;
  if (const Result result = FindGpus(); result != Result::kSuccess) return result;
  const int error = slot_.Claim(&state_);
  if (error != 0) return Result::kOperatingSystem;
  default_pools_.resize(gpus_.size());
  primaries_.resize(gpus_.size());
  for (size_t i = 0; i < gpus_.size(); ++i) {
    default_pools_[i].device = int(i);
    default_pools_[i].built_in = true;
    pools_.push_back(&default_pools_[i]);
  }
  pid_ = getpid();
  initialised_ = true;
  return Result::kSuccess;
}

Result Driver::FindGpus() {
  if (!state_.valid()) {
    const std::string dir = StateDir();
    if (dir.empty() || state_.Open(dir) != 0) return Result::kNoDevice;
  }
  // As the real driver: without the control node there is no driver, without UVM no memory.
  if (!Exists("nvidiactl")) return Result::kNoDevice;
  gpus_ = ApplyVisibleDevices(state_, NodesOf(state_), getenv("CUDA_VISIBLE_DEVICES"));
  if (gpus_.empty()) return Result::kNoDevice;
  return Exists("nvidia-uvm") ? Result::kSuccess : Result::kUnknown;
}

Result Driver::CreateContext(Device device, unsigned flags, unsigned api_version,
                             ContextTag** context) {
  const uint32_t gpu = GpuOf(device);
  // Read before lost, so that a loss in between ends this context.
  const uint32_t epoch = state_.live(gpu).poison_epoch.load();
  if (state_.lost(gpu)) return Result::kDeviceUnavailable;
  if (slot_.Charge(gpu, state_.facts(gpu).context_bytes) != 0) return Result::kOutOfMemory;
  auto* made = new ContextTag();
  made->device = device;
  made->flags = flags;
  made->api_version = api_version;
  made->id = NextId();
  made->epoch = epoch;
  made->legacy.context = made;
  made->legacy.id = NextId();
  contexts_.insert(made);
  slot_.AddContexts(gpu, 1);
  *context = made;
  return Result::kSuccess;
}

void Driver::DestroyContext(ContextTag* context) {
  const uint32_t gpu = GpuOf(context->device);
  std::vector<DevicePtr> pointers;
  for (const auto& [base, allocation] : allocations_) {
    if (allocation.context == context) pointers.push_back(base);
  }
  for (DevicePtr pointer : pointers) {
    const Allocation& allocation = allocations_[pointer];
    if (allocation.kind == MemoryKind::kHost || allocation.kind == MemoryKind::kRegistered) {
      RemoveHostMemory(reinterpret_cast<void*>(pointer), allocation.kind == MemoryKind::kRegistered);
    } else {
      (void)Free(pointer);
    }
  }
  for (StreamTag* stream : context->streams) delete stream;
  std::erase_if(modules_, [&](const auto& item) { return item.first->context == context; });
  for (auto& [handle, library] : libraries_) library->modules.erase(context);
  for (auto event = events_.begin(); event != events_.end();) {
    const bool dead = (*event)->context == context;
    if (dead) delete *event;
    event = dead ? events_.erase(event) : std::next(event);
  }
  for (ContextTag* other : contexts_) other->peers.erase(context);
  contexts_.erase(context);
  delete context;
  slot_.AddContexts(gpu, -1);
  slot_.Uncharge(gpu, state_.facts(gpu).context_bytes);
}

Result Driver::HealthOf(ContextTag* context) {
  if (context->error != Result::kSuccess) return context->error;
  sim::GpuLive& live = state_.live(GpuOf(context->device));
  if (live.poison_epoch.load() != context->epoch) {
    context->error = static_cast<Result>(live.poison_result.load());
  }
  return context->error;
}

Result Driver::Map(uint64_t bytes, uint32_t gpu, DevicePtr* pointer) {
  switch (slot_.Charge(gpu, bytes)) {
    case 0: break;
    case ENOMEM: return Result::kOutOfMemory;
    default: return Result::kOperatingSystem;
  }
  // One block more than needed, to start at a block's border as device memory does.
  void* memory = mmap(nullptr, bytes + kBlockBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    slot_.Uncharge(gpu, bytes);
    return Result::kOutOfMemory;
  }
  const auto begin = reinterpret_cast<uint64_t>(memory);
  const uint64_t base = RoundUp(begin, kBlockBytes);
  if (base > begin) munmap(memory, base - begin);
  if (base < begin + kBlockBytes) {
    munmap(reinterpret_cast<void*>(base + bytes), begin + kBlockBytes - base);
  }
  *pointer = base;
  return Result::kSuccess;
}

void Driver::Unmap(DevicePtr base, uint64_t bytes, uint32_t gpu) {
  munmap(reinterpret_cast<void*>(base), bytes);
  slot_.Uncharge(gpu, bytes);
}

Result Driver::TakeBlocks(MemPoolTag* pool, uint64_t bytes, uint32_t gpu, uint64_t* taken,
                          DevicePtr* base) {
  *taken = bytes;
  if (pool == nullptr) return Map(bytes, gpu, base);
  // A kept block also serves a smaller allocation, unless more than half of it would be wasted.
  if (auto kept = pool->kept.lower_bound(bytes);
      kept != pool->kept.end() && kept->first / 2 <= bytes) {
    *taken = kept->first;
    *base = kept->second;
    pool->kept.erase(kept);
    return Result::kSuccess;
  }
  if (pool->max_size != 0 && pool->reserved + bytes > RoundUp(pool->max_size, kBlockBytes))
    return Result::kOutOfMemory;
  Result result = Map(bytes, gpu, base);
  if (result == Result::kOutOfMemory && !pool->kept.empty()) {
    Trim(pool, 0);
    result = Map(bytes, gpu, base);
  }
  if (result != Result::kSuccess) return result;
  pool->reserved += bytes;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  return Result::kSuccess;
}

void Driver::GiveBlocks(MemPoolTag* pool, DevicePtr base, uint64_t bytes, uint32_t gpu) {
  if (pool == nullptr) return Unmap(base, bytes, gpu);
  pool->kept.emplace(bytes, base);
  Trim(pool, pool->release_threshold);
}

void Driver::Trim(MemPoolTag* pool, uint64_t keep) {
  while (pool->reserved > keep && !pool->kept.empty()) {
    const auto kept = pool->kept.begin();
    Unmap(kept->second, kept->first, GpuOf(pool->device));
    pool->reserved -= kept->first;
    pool->kept.erase(kept);
  }
}

uint32_t Driver::GpuOf(const Allocation& allocation) const {
  return GpuOf(allocation.pool != nullptr ? allocation.pool->device : allocation.context->device);
}

std::map<DevicePtr, Block>& Driver::BlocksOf(const Allocation& allocation) {
  return allocation.pool != nullptr ? allocation.pool->blocks : allocation.context->blocks;
}

Result Driver::AllocatePart(uint64_t bytes, uint32_t gpu, Allocation* allocation) {
  const uint64_t size = RoundUp(bytes, kSmallAlign);
  std::map<DevicePtr, Block>& blocks = BlocksOf(*allocation);
  for (auto& [base, block] : blocks) {
    for (auto& [start, length] : block.free) {
      if (length < size) continue;
      allocation->base = start;
      allocation->block = base;
      const uint64_t left = length - size;
      const uint64_t at = start;
      block.free.erase(at);
      if (left != 0) block.free[at + size] = left;
      return Result::kSuccess;
    }
  }
  uint64_t taken = 0;
  DevicePtr base = 0;
  const Result result = TakeBlocks(allocation->pool, kBlockBytes, gpu, &taken, &base);
  if (result != Result::kSuccess) return result;
  Block& block = blocks[base];
  block.bytes = taken;
  block.free[base + size] = taken - size;
  allocation->base = base;
  allocation->block = base;
  return Result::kSuccess;
}

void Driver::FreePart(const Allocation& allocation) {
  std::map<DevicePtr, Block>& blocks = BlocksOf(allocation);
  std::map<DevicePtr, uint64_t>& free = blocks[allocation.block].free;
  auto here = free.emplace(allocation.base, RoundUp(allocation.size, kSmallAlign)).first;
  if (auto next = std::next(here); next != free.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free.erase(next);
  }
  if (here != free.begin()) {
    if (auto before = std::prev(here); before->first + before->second == here->first) {
      before->second += here->second;
      free.erase(here);
    }
  }
  const uint64_t bytes = blocks[allocation.block].bytes;
  if (free.begin()->second != bytes) return;
  blocks.erase(allocation.block);
  GiveBlocks(allocation.pool, allocation.block, bytes, GpuOf(allocation));
}

Result Driver::Allocate(ContextTag* context, uint64_t bytes, MemoryKind kind, MemPoolTag* pool,
                        DevicePtr* pointer) {
  if (bytes == 0) return Result::kInvalidValue;
  Allocation allocation;
  allocation.size = bytes;
  allocation.kind = kind;
  allocation.context = context;
  allocation.pool = pool;
  const uint32_t gpu = GpuOf(allocation);
  if (bytes > state_.facts(gpu).memory_bytes) return Result::kOutOfMemory;
  Result result;
  if (bytes <= kSmallBytes) {
    result = AllocatePart(bytes, gpu, &allocation);
  } else {
    result =
        TakeBlocks(pool, RoundUp(bytes, kBlockBytes), gpu, &allocation.charged, &allocation.base);
  }
  if (result != Result::kSuccess) return result;
  if (pool != nullptr) {
    pool->used += bytes;
    pool->used_high = std::max(pool->used_high, pool->used);
  }
  allocations_[allocation.base] = allocation;
  *pointer = allocation.base;
  return Result::kSuccess;
}

Result Driver::Free(DevicePtr pointer) {
  auto found = allocations_.find(pointer);
  if (found == allocations_.end() || found->second.kind == MemoryKind::kHost ||
      found->second.kind == MemoryKind::kRegistered) {
    return Result::kInvalidValue;
  }
  const Allocation allocation = found->second;
  allocations_.erase(found);
  if (allocation.pool != nullptr) allocation.pool->used -= allocation.size;
  if (allocation.block != 0) {
    FreePart(allocation);
  } else {
    GiveBlocks(allocation.pool, allocation.base, allocation.charged, GpuOf(allocation));
  }
  return Result::kSuccess;
}

Allocation* Driver::FindAllocation(DevicePtr pointer, uint64_t bytes) {
  auto after = allocations_.upper_bound(pointer);
  if (after == allocations_.begin()) return nullptr;
  Allocation& allocation = std::prev(after)->second;
  const uint64_t offset = pointer - allocation.base;
  const bool inside = offset <= allocation.size && bytes <= allocation.size - offset;
  return inside ? &allocation : nullptr;
}

void Driver::AddHostMemory(ContextTag* context, void* pointer, uint64_t bytes, bool registered,
                           unsigned flags) {
  Allocation allocation;
  allocation.base = reinterpret_cast<DevicePtr>(pointer);
  allocation.size = bytes;
  allocation.kind = registered ? MemoryKind::kRegistered : MemoryKind::kHost;
  allocation.context = context;
  allocation.flags = flags;
  allocations_[allocation.base] = allocation;
}

bool Driver::RemoveHostMemory(void* pointer, bool registered) {
  auto found = allocations_.find(reinterpret_cast<DevicePtr>(pointer));
  const MemoryKind kind = registered ? MemoryKind::kRegistered : MemoryKind::kHost;
  if (found == allocations_.end() || found->second.kind != kind) return false;
  allocations_.erase(found);
  if (!registered) free(pointer);
  return true;
}

StreamTag* Driver::CreateStream(ContextTag* context, unsigned flags, int priority) {
  auto* stream = new StreamTag();
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = NextId();
  context->streams.insert(stream);
  return stream;
}

void Driver::DestroyStream(StreamTag* stream) {
  // What was launched still has to be waited for by cuCtxSynchronize.
  StreamTag& legacy = stream->context->legacy;
  legacy.ready_ns = std::max(legacy.ready_ns, stream->ready_ns);
  stream->context->streams.erase(stream);
  delete stream;
}

StreamTag* Driver::FindStream(ContextTag* context, Stream stream) {
  if (reinterpret_cast<uintptr_t>(stream) <= kStreamPerThread) return &context->legacy;
  for (ContextTag* owner : contexts_) {
    if (owner->streams.contains(stream)) return stream;
  }
  return nullptr;
}

uint64_t Driver::ReadyAt(ContextTag* context) {
  uint64_t ready = context->legacy.ready_ns;
  for (StreamTag* stream : context->streams) ready = std::max(ready, stream->ready_ns);
  return ready;
}

uint64_t Driver::ReadyAt(StreamTag* stream) {
  ContextTag* context = stream->context;
  if (stream != &context->legacy) return stream->ready_ns;
  return context->legacy.ready_ns;
}

Driver::Span Driver::Enqueue(StreamTag* stream, uint64_t duration_ns, bool busy) {
  ContextTag* context = stream->context;
  uint64_t start = std::max(sim::MonotonicNs(), stream->ready_ns);
  if (stream == &context->legacy) {
    for (StreamTag* other : context->streams) {
      if ((other->flags & kStreamNonBlocking) == 0) start = std::max(start, other->ready_ns);
    }
  } else if ((stream->flags & kStreamNonBlocking) == 0) {
    start = std::max(start, context->legacy.ready_ns);
  }
  stream->ready_ns = start + duration_ns;
  if (busy) slot_.AddBusy(GpuOf(context->device), start, stream->ready_ns);
  return {start, stream->ready_ns};
}

ModuleTag* Driver::ModuleOf(LibraryTag* library, ContextTag* context) {
  ModuleTag*& module = library->modules[context];
  if (module == nullptr) {
    auto made = std::make_unique<ModuleTag>();
    made->context = context;
    made->library = library;
    made->image = library->image;
    module = made.get();
    modules_[module] = std::move(made);
  }
  return module;
}

FunctionTag* Driver::FindFunction(Function handle, ContextTag* context) {
  for (auto& [module, owned] : modules_) {
    for (auto& [name, function] : module->functions) {
      if (function.get() == handle) return function.get();
    }
  }
  // A kernel of a library may stand for its function.
  for (auto& [handle_of, library] : libraries_) {
    for (auto& [name, kernel] : library->kernels) {
      if (reinterpret_cast<Function>(kernel.get()) != handle) continue;
      ModuleTag* module = ModuleOf(library.get(), context);
      auto& function = module->functions[name];
      if (function == nullptr) {
        function = std::make_unique<FunctionTag>();
        function->module = module;
        if (const Entry* entry = library->image.Find(name)) function->entry = *entry;
        function->entry.name = name;
      }
      return function.get();
    }
  }
  return nullptr;
}

std::vector<ContextTag*>& ContextStack() {
  thread_local std::vector<ContextTag*> stack;
  return stack;
}

Call::Call() : driver_(Driver::Get()) {
  result_ = !driver_.initialised() || driver_.forked() ? Result::kNotInitialized : Result::kSuccess;
  if (result_ == Result::kSuccess) lock_ = std::unique_lock(driver_.mutex());
}

Result Call::Wait(ContextTag* context, uint64_t when_ns) {
  sim::GpuLive& live = driver_.state().live(driver_.GpuOf(context->device));
  const uint32_t epoch = context->epoch;
  lock_.unlock();
  uint64_t now = sim::MonotonicNs();
  while (now < when_ns && live.poison_epoch.load() == epoch) {
    sim::FutexWait(&live.poison_epoch, epoch, when_ns - now);
    now = sim::MonotonicNs();
  }
  WaitForCallbacks(when_ns);
  lock_.lock();
  // Another thread may have destroyed the context in the meantime.
  return driver_.IsContext(context) ? driver_.HealthOf(context) : Result::kContextIsDestroyed;
}

ContextCall::ContextCall() {
  result_ = Call::result();
  if (result_ != Result::kSuccess) return;
  std::vector<ContextTag*>& stack = ContextStack();
  if (stack.empty() || stack.back() == nullptr) {
    result_ = Result::kInvalidContext;
    return;
  }
  context_ = stack.back();
  result_ = driver().IsContext(context_) ? driver().HealthOf(context_) : Result::kContextIsDestroyed;
}

}  // namespace tessera::cuda
