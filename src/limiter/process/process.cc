// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/process/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <new>

#include "src/limiter/loader/driver.h"
#include "src/limiter/loader/paths.h"
#include "src/limiter/process/message.h"
#include "src/limiter/region/slots.h"
#include "src/limiter/region/uuid.h"
#include "src/limiter/tables/blocks.h"

// Since Linux 4.14; older C libraries do not declare it.
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace tessera::limiter {

enum Process::State : int { kNew = 0, kLimiting, kNotLimited, kRefused };

namespace {

using cuda::Result;

// State in a page that the kernel fills with zeros in every child. The lock is in this page,
// because at the fork it may be held by a thread that does not exist in the child.
struct ProcessPage {
  std::atomic<int> state;
  std::atomic<int> owner;  // process id on kernels before 4.14, which do not zero the page; else 0
  std::atomic<int> forking;  // id of the thread that holds the lock during a fork
  SpinLock lock;             // held while cuInit opens the region
};
ProcessPage* page = nullptr;
constinit Process process;

int ThreadId() { return int(::syscall(SYS_gettid)); }

// While cuInit claims a slot, the descriptor that holds the slot's lock is open. A child that is
// forked meanwhile would inherit the descriptor, and the memory of its parent would stay charged
// after the parent's end. So fork waits for cuInit. The wait has a time limit, because a signal
// handler may fork in the thread that holds ProcessPage::lock.
void BeforeFork() {
  constexpr timespec kPause = {0, 100'000};
  for (int i = 0; i < 1000; ++i) {
    if (page->lock.TryLock()) {
      page->forking.store(ThreadId());
      return;
    }
    ::nanosleep(&kPause, nullptr);
  }
}

// The child has a new page, so only the parent must unlock.
void AfterForkInParent() {
  if (page->forking.load() != ThreadId()) return;
  page->forking.store(0);
  page->lock.Unlock();
}

__attribute__((constructor)) void MakePage() {
  const auto size = size_t(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;  // cuInit reports the error
  page = new (memory) ProcessPage();
  if (::madvise(memory, size, MADV_WIPEONFORK) != 0) page->owner.store(::getpid());
  (void)::pthread_atfork(BeforeFork, AfterForkInParent, nullptr);
}

// On kernels before 4.14 a child starts with a copy of its parent's page.
void ResetAfterFork() {
  const int owner = page->owner.load(std::memory_order_relaxed);
  if (owner == 0 || owner == ::getpid()) return;
  new (page) ProcessPage();
  page->owner.store(::getpid());
}

// What the user can do about an error that may be temporary; null: the error is permanent.
const char* RemedyFor(int error) {
  switch (error) {
    case EMFILE:
      return "close files, or raise the limit of open files (ulimit -n)";
    case ENFILE:
      return "close files on this node";
    case ENOMEM:
      return "free host memory";
    case EAGAIN:
      return "end some of them";
    case EFBIG:
      return "raise the limit of file size (ulimit -f)";
    default:
      return nullptr;
  }
}

static_assert(sizeof(Usage) <= 6 << 20 && kMaxSlots == 4096);  // the texts of ReasonOf
const char* ReasonOf(int error) {
  switch (error) {
    case EAGAIN:
      return "4096 processes of this container use it";
    case EFBIG:
      return "this process may not create a file of 6 MiB";
    case EPROTO:
      return "the file is damaged";
    default:
      return ::strerror(error);
  }
}

void ReportNoGpu(const char* failed, const char* path, int error) {
  const char* remedy = RemedyFor(error);
  WriteMessage("%s %s: %s: the GPU is not available%s: %s", failed, path, ReasonOf(error),
               remedy != nullptr ? " until a later cuInit succeeds" : "",
               remedy != nullptr ? remedy : "restart the container");
}

}  // namespace

Process& Process::Get() { return process; }

bool Process::IsLimiting() const {
  if (page == nullptr) return false;
  ResetAfterFork();
  return page->state.load(std::memory_order_acquire) == kLimiting;
}

Result Process::Init() {
  if (!driver.is_library_loaded) {
    WriteMessage("the real driver library is missing at %s: restart the container", kRealCuda);
    return Result::kNotPermitted;
  }
  if (page == nullptr) return Result::kOutOfMemory;
  ResetAfterFork();
  const SpinGuard guard(&page->lock);
  if (page->state.load() == kNew) {
    Reset();
    page->state.store(Open());
  }
  const int state = page->state.load();
  return state == kRefused || state == kNew ? Result::kNotPermitted : Result::kSuccess;
}

// A child of fork starts with the tables of its parent, and with locks that threads of its parent
// held.
void Process::Reset() {
  allocations_.Reset();
  shared_blocks_.Reset();
  charges_.Reset();
  contexts_.Reset();
  context_memory_.Reset();
  pools_.Reset();
  graph_needs_.Reset();
  libraries_.Reset();
  physical_pieces_.Reset();
  for (auto& gpu : gpus_) gpu.store(0);
  for (auto& primary : primary_contexts_) primary.store(nullptr);
}

Process::State Process::Open() {
  const Limits* limits = nullptr;
  if (const int error = MapLimits(kLimitsPath, &limits); error != 0) {
    ReportNoGpu("cannot read the limits of this container at", kLimitsPath, error);
    return RemedyFor(error) != nullptr ? kNew : kRefused;
  }
  Usage* usage = nullptr;
  uint32_t slot = 0;
  int error = MakeUsage(kUsagePath);
  if (error == 0) error = ClaimSlot(kUsagePath, &usage, &slot);
  if (error != 0) {
    const bool fail_open = (limits->flags.load() & kFailOpen) != 0;
    ::munmap(const_cast<Limits*>(limits), sizeof(Limits));
    constexpr char kFailed[] = "cannot account for device memory in";
    if (fail_open) {
      WriteMessage("%s %s: %s: this process is not limited", kFailed, kUsagePath, ReasonOf(error));
      return kNotLimited;
    }
    ReportNoGpu(kFailed, kUsagePath, error);
    return RemedyFor(error) != nullptr ? kNew : kRefused;
  }
  memory_budget_.Open(limits, usage, slot, kUsagePath);
  const auto release = [](void* budget, const EndedCharge& ended) {
    static_cast<MemoryBudget*>(budget)->Release(ended.gpu, ended.bytes);
  };
  shared_pieces_.Open(kUsagePath, usage, slot);
  physical_pieces_.Open(release, &memory_budget_, &shared_pieces_);
  Throttle::Get().Open(limits, usage, slot);
  return kLimiting;
}

int Process::GpuOf(cuda::Device device) {
  if (!IsLimiting() || device < 0 || device >= kMaxDevices) return -1;
  const int cached = gpus_[device].load(std::memory_order_relaxed);
  if (cached != 0) return cached - 2;
  cuda::Uuid uuid = {};
  // The _v2 function knows the UUIDs of MIG devices. If both fail, the next call retries.
  if (driver.cuDeviceGetUuid_v2(&uuid, device) != Result::kSuccess &&
      driver.cuDeviceGetUuid(&uuid, device) != Result::kSuccess) {
    return -1;
  }
  uint8_t bytes[16];
  ::memcpy(bytes, uuid.bytes, sizeof(bytes));
  const int gpu = FindGpu(memory_budget_.limits(), bytes);
  gpus_[device].store(gpu + 2, std::memory_order_relaxed);
  return gpu;
}

Contexts::Info Process::CurrentContext() {
  Contexts::Info info;
  cuda::Context context = nullptr;
  if (!IsLimiting() || driver.cuCtxGetCurrent(&context) != Result::kSuccess || context == nullptr)
    return info;
  if (contexts_.Find(context, &info)) return info;
  cuda::Device device = -1;
  if (driver.cuCtxGetDevice(&device) != Result::kSuccess) return info;
  info.gpu = GpuOf(device);
  info.id = contexts_.Add(context, info.gpu);
  // A library has created the context by calling the driver directly, so the limiter cannot refuse
  // the context.
  (void)ChargeLibraries(info);
  return info;
}

void Process::Reclaim(int gpu) {
  physical_pieces_.EndChargesOfClosedExports();
  // Pools keep memory that the program has freed.
  pools_.TrimAll(gpu, &memory_budget_);
}

bool Process::Reserve(int gpu, uint64_t bytes, const char* what) {
  if (memory_budget_.Reserve(gpu, bytes)) return true;
  Reclaim(gpu);
  if (memory_budget_.Reserve(gpu, bytes)) return true;
  Refuse(gpu, bytes, what);
  return false;
}

bool Process::Hold(int gpu, uint64_t bytes) {
  if (memory_budget_.Hold(gpu, bytes)) return true;
  Reclaim(gpu);
  if (memory_budget_.Hold(gpu, bytes)) return true;
  Refuse(gpu, bytes);
  return false;
}

bool Process::HasRoom(int gpu, const char* what) {
  const uint64_t limit = LimitOf(gpu);
  // Without unaccounted memory there is room even at the limit: a program may fill its share before
  // it loads the code of its first kernel.
  if (limit == 0 || memory_budget_.limits().gpus[gpu].unaccounted.load(kRelaxed) == 0) return true;
  if (memory_budget_.HeldBytes(gpu) < limit) return true;
  Reclaim(gpu);
  if (memory_budget_.HeldBytesAfterSweep(gpu) < limit) return true;
  Refuse(gpu, 0, what);
  return false;
}

void Process::Refuse(int gpu, uint64_t bytes, const char* what) {
  memory_budget_.RecordRefusal(gpu, bytes);
  const GpuLimit& gpu_limit = memory_budget_.limits().gpus[gpu];
  ReportRefusal(gpu_limit.uuid, what, bytes, memory_budget_.HeldBytes(gpu),
                gpu_limit.unaccounted.load(kRelaxed), memory_budget_.Limit(gpu));
}

bool Process::InsertAllocation(cuda::DevicePtr pointer, const Allocation& allocation) {
  Allocation replaced;
  const auto insertion = allocations_.Insert(pointer, allocation, &replaced);
  if (insertion == Allocations::Insertion::kReplaced) EndCharge(replaced, pointer);
  return insertion != Allocations::Insertion::kNoMemory;
}

bool Process::Charge(const Contexts::Info& context, cuda::DevicePtr pointer, uint64_t bytes,
                     uint64_t held) {
  const bool in_block = bytes <= kMaxSmallBytes;
  const uint64_t charged = in_block ? kBlockBytes : RoundToBlocks(bytes);
  const Allocation allocation =
      in_block ? Allocation::InSharedBlock(context.gpu, context.id)
               : Allocation::InOwnBlocks(charged / kBlockBytes, context.gpu, context.id);
  if (context.id == 0) {
    memory_budget_.Release(context.gpu, held);
    return false;
  }
  // The charge is complete before the table has the allocation, because then another thread may end
  // the charge with the context.
  const bool charge = !in_block || shared_blocks_.Join(pointer / kBlockBytes * kBlockBytes);
  if (!charge || charged != held) {
    if (charge) memory_budget_.Add(context.gpu, charged);
    memory_budget_.Release(context.gpu, held);
  }
  if (InsertAllocation(pointer, allocation)) return true;
  EndCharge(allocation, pointer);
  return false;
}

int Process::AddPool(cuda::MemPool pool, int gpu) {
  const int index = pools_.Add(pool, gpu);
  if (index < 0) {
    WriteMessage(
        "cannot count a memory pool: this process has %d pools, or the host's memory is exhausted: "
        "destroy pools that are not used",
        Pools::kMaxPools);
  }
  return index;
}

bool Process::ChargePool(int gpu, cuda::DevicePtr pointer, int pool, uint64_t reserved) {
  const bool inserted = InsertAllocation(pointer, Allocation::InPool(pool, gpu));
  pools_.Refresh(pool, &memory_budget_);
  memory_budget_.Cancel(gpu, reserved);
  return inserted;
}

void Process::EndCharge(const Allocation& allocation, uint64_t pointer) {
  if (allocation.in_pool != 0) {
    pools_.Refresh(allocation.pool(), &memory_budget_);
  } else if (allocation.own_blocks() != 0) {
    memory_budget_.Release(int(allocation.gpu), allocation.own_blocks() * kBlockBytes);
  } else if (shared_blocks_.Leave(pointer / kBlockBytes * kBlockBytes)) {
    memory_budget_.Release(int(allocation.gpu), kBlockBytes);
  }
}

// A context with id 0 has no charges of its own: at most memory of pools was allocated in it.
void Process::EndContext(const Contexts::Info& info) {
  const auto end = [](void* self, uint64_t pointer, const Allocation& allocation) {
    static_cast<Process*>(self)->EndCharge(allocation, pointer);
  };
  if (info.id != 0) {
    allocations_.RemoveContext(info.id, end, this);
    charges_.EndContext(info.id, &memory_budget_);
  }
  if (info.is_counted) memory_budget_.Release(info.gpu, context_memory_.RemoveContext(info.gpu));
  pools_.RefreshAll(&memory_budget_);
  Throttle::Get().ForgetContext(info.id);
}

uint64_t Process::FreeBytesOf(cuda::Device device) {
  cuda::Device current = -1;
  size_t free = 0, total = 0;
  if (driver.cuCtxGetDevice(&current) != Result::kSuccess || current != device) return 0;
  return driver.cuMemGetInfo_v2(&free, &total) == Result::kSuccess ? free : 0;
}

constexpr char kContext[] = "a context";

bool Process::ReserveContext(int gpu, uint64_t* reserved) {
  if (!HasRoom(gpu, kContext)) return false;
  *reserved = context_memory_.NextCharge(gpu);
  if (*reserved == 0 || Reserve(gpu, *reserved, kContext)) return true;
  *reserved = 0;
  return false;
}

bool Process::ChargeContext(int gpu, cuda::Context context, uint64_t last_id, uint64_t reserved) {
  bool is_new = false;
  Contexts::Info replaced;
  const bool is_counted = contexts_.AddCounted(context, gpu, last_id, &is_new, &replaced);
  if (replaced.id != 0) EndContext(replaced);
  if (!is_counted) return false;
  if (!is_new) return true;
  const uint64_t charge = context_memory_.AddContext(gpu);
  const uint64_t more = charge > reserved ? charge - reserved : 0;
  const bool has_room = more == 0 || Reserve(gpu, more, kContext);
  memory_budget_.Add(gpu, charge);
  if (has_room) memory_budget_.Cancel(gpu, more);
  Contexts::Info created;
  return has_room && contexts_.Find(context, &created) && ChargeLibraries(created);
}

bool Process::ChargeLibrary(const Libraries::LoadedLibrary& library,
                            const Contexts::Info& context) {
  if (context.gpu < 0 || context.id == 0) return true;
  const uint64_t reserved = RoundToBlocks(library.bytes);
  if (!Reserve(context.gpu, reserved, "a library with variables")) return false;
  const bool charged = charges_.Add(Libraries::ChargeKey(library.id, context.id), context,
                                    library.bytes, &memory_budget_);
  memory_budget_.Cancel(context.gpu, reserved);
  return charged;
}

bool Process::ChargeLibraries(const Contexts::Info& context) {
  const uint32_t capacity = libraries_.capacity();
  for (uint32_t i = 0; i < capacity; ++i) {
    Libraries::LoadedLibrary library;
    if (libraries_.At(i, &library) && !ChargeLibrary(library, context)) return false;
  }
  return true;
}

bool Process::ChargeInContexts(const Libraries::LoadedLibrary& library) {
  for (uint32_t i = 0; i < Contexts::kCapacity; ++i) {
    Contexts::Info context;
    if (!contexts_.At(i, &context) || ChargeLibrary(library, context)) continue;
    EndChargeInContexts(library);
    return false;
  }
  return true;
}

void Process::EndChargeInContexts(const Libraries::LoadedLibrary& library) {
  for (uint32_t i = 0; i < Contexts::kCapacity; ++i) {
    Contexts::Info context;
    if (!contexts_.At(i, &context)) continue;
    charges_.End(Libraries::ChargeKey(library.id, context.id), kAfterAllMoments, &memory_budget_);
  }
}

void Process::SetPrimary(cuda::Device device, cuda::Context context) {
  if (device >= 0 && device < kMaxDevices) primary_contexts_[device].store(context);
}

void Process::EndPrimary(cuda::Device device, uint64_t last_id) {
  int active = 1;
  if (device < 0 || device >= kMaxDevices) return;
  if (driver.cuDevicePrimaryCtxGetState(device, nullptr, &active) != Result::kSuccess ||
      active != 0)
    return;
  Contexts::Info info;
  const cuda::Context context = primary_contexts_[device].exchange(nullptr);
  if (context != nullptr) (void)contexts_.Remove(context, last_id, &info);
  EndContext(info);
}

}  // namespace tessera::limiter
