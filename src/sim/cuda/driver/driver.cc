// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/driver/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>

#include "src/sim/cuda/device/visible.h"
#include "src/sim/cuda/stream/kernels.h"

namespace tessera::cuda {
namespace {

// The state folder of the node that this library belongs to.
std::string StateDir() {
  static const char here = 0;
  return sim::State::FindDir(&here);
}

// The kernel's entry in $SIMGPU_KERNEL_NS. Reports an invalid setting once in a process.
KernelTimes ConfiguredTimes(std::string_view kernel) {
  const char* const setting = getenv("SIMGPU_KERNEL_NS");
  if (setting == nullptr) return {};
  static bool is_checked = false;
  const std::string invalid(is_checked ? "" : KernelTimes::FirstInvalid(setting));
  is_checked = true;
  if (!invalid.empty()) {
    fprintf(stderr,
            "simgpu: invalid item \"%s\" of SIMGPU_KERNEL_NS is ignored: want "
            "KERNEL=NS, KERNEL=LOW..HIGH or KERNEL=NS|NS|..., in whole nanoseconds above 0\n",
            invalid.c_str());
  }
  return KernelTimes::Find(setting, kernel);
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
  if (initialized_) return forked() ? Result::kNotInitialized : Result::kSuccess;
  if (const Result result = FindGpus(); result != Result::kSuccess) return result;
  const int error = slot_.Claim(&state_);
  if (error != 0) return Result::kOperatingSystem;
  if (instance_ != sim::kMaxInstances) UseInstance();
  default_pools_.resize(gpus_.size());
  primary_contexts_.resize(gpus_.size());
  for (size_t i = 0; i < gpus_.size(); ++i) {
    default_pools_[i].device = int(i);
    pools_.push_back(&default_pools_[i]);
  }
  pid_ = getpid();
  initialized_ = true;
  return Result::kSuccess;
}

Result Driver::FindGpus() {
  if (!state_.valid()) {
    const std::string dir = StateDir();
    if (dir.empty() || state_.Open(dir) != 0) return Result::kNoDevice;
  }
  // As with the real driver, CUDA needs the control node and the UVM node.
  if (!Exists("nvidiactl")) return Result::kNoDevice;
  gpus_.clear();
  for (const VisibleDevice& device : FindDevices(state_, getenv("CUDA_VISIBLE_DEVICES"))) {
    gpus_.push_back(device.gpu);
    instance_ = device.instance;
  }
  if (gpus_.empty()) return Result::kNoDevice;
  return Exists("nvidia-uvm") ? Result::kSuccess : Result::kUnknown;
}

// Makes the process use a MIG instance. The process then charges memory to the instance, takes
// turns on it, and sees its facts instead of the GPU's.
void Driver::UseInstance() {
  const uint32_t gpu = gpus_[0];
  slot_.UseInstance(gpu, instance_);
  const sim::ComputeInstance& compute = state_.gpu_state(gpu).compute_instances[instance_];
  const uint32_t parent = compute.gpu_instance.load();
  const sim::MigProfile& profile = state_.ProfileOf(gpu, parent);
  mig_facts_ = std::make_unique<sim::GpuFacts>(state_.facts(gpu));
  sim::GpuFacts& facts = *mig_facts_;
  const std::string name =
      std::string(facts.name) + " MIG " + state_.InstanceProfile(gpu, instance_);
  snprintf(facts.name, sizeof(facts.name), "%s", name.c_str());
  snprintf(facts.uuid, sizeof(facts.uuid), "%s", state_.InstanceUuid(gpu, instance_).c_str());
  facts.sm_count = state_.MultiprocessorsOf(gpu, parent, compute.slices.load());
  facts.memory_bytes = profile.memory_bytes;
  facts.reserved_bytes = 0;
  facts.memory_bus_bits = facts.memory_bus_bits / 8 * profile.size;
  facts.l2_bytes = facts.l2_bytes / 8 * profile.size;
  facts.memory_bytes_per_second = facts.memory_bytes_per_second / 8 * profile.size;
  facts.async_engines = profile.copy_engines;
}

uint64_t Driver::UsedBytes(uint32_t gpu) {
  if (mig_facts_ == nullptr) return state_.UsedBytes(gpu);
  const uint32_t parent = state_.gpu_state(gpu).compute_instances[instance_].gpu_instance.load();
  return state_.UsedBytes(gpu, parent);
}

Result Driver::CreateContext(Device device, unsigned flags, unsigned api_version,
                             ContextTag** context) {
  const uint32_t gpu = GpuOf(device);
  // Read before the check for a lost GPU, so that a loss in between ends this context.
  const uint32_t epoch = state_.gpu_state(gpu).poison_epoch.load();
  if (state_.is_lost(gpu)) return Result::kDeviceUnavailable;
  const bool gone = mig_facts_ != nullptr &&
                    state_.gpu_state(gpu).compute_instances[instance_].present.load() == 0;
  if (gone) return Result::kDeviceUnavailable;
  if (slot_.Charge(gpu, state_.facts(gpu).context_bytes) != 0) return Result::kOutOfMemory;
  auto* created = new ContextTag();
  created->device = device;
  created->flags = flags;
  created->api_version = api_version;
  created->id = NextId();
  created->epoch = epoch;
  created->legacy.context = created;
  created->legacy.id = NextId();
  contexts_.insert(created);
  streams_.insert(&created->legacy);
  slot_.AddContexts(gpu, 1);
  *context = created;
  return Result::kSuccess;
}

void Driver::DestroyContext(ContextTag* context, std::unique_lock<std::mutex>* lock) {
  const uint32_t gpu = GpuOf(context->device);
  // First, because DropContext may release the lock: no other thread must use or destroy the
  // context then.
  contexts_.erase(context);
  engine_.DropContext(context, lock);
  std::vector<ModuleTag*> modules;
  for (const auto& [module, owned] : modules_) {
    if (module->context == context) modules.push_back(module);
  }
  for (ModuleTag* module : modules) Unload(module);
  for (auto& [handle, library] : libraries_) library->modules.erase(context);
  std::vector<DevicePtr> pointers;
  for (const auto& [base, allocation] : allocations_) {
    if (allocation.context == context) pointers.push_back(base);
  }
  for (DevicePtr pointer : pointers) {
    const Allocation& allocation = allocations_[pointer];
    if (allocation.kind == MemoryKind::kHost || allocation.kind == MemoryKind::kRegistered) {
      RemoveHostMemory(reinterpret_cast<void*>(pointer),
                       allocation.kind == MemoryKind::kRegistered);
    } else if (allocation.imported) {
      Unimport(pointer);
    } else {
      (void)Free(pointer);
    }
  }
  arrays_.RemoveArraysOf(context);
  textures_.RemoveObjectsOf(context);
  for (StreamTag* stream : context->streams) {
    graphs_.RemoveStream(stream);
    streams_.erase(stream);
    delete stream;
  }
  for (auto event = events_.begin(); event != events_.end();) {
    const bool dead = (*event)->context == context;
    if (dead) delete *event;
    event = dead ? events_.erase(event) : std::next(event);
  }
  for (ContextTag* other : contexts_) other->peers.erase(context);
  const auto is_here = [context](ContextTag* other) { return other->device == context->device; };
  if (std::ranges::none_of(contexts_, is_here)) graph_pools_.EndDevice(context->device);
  streams_.erase(&context->legacy);
  for (const auto& [limit, bytes] : context->limit_bytes) slot_.Uncharge(gpu, bytes);
  delete context;
  slot_.AddContexts(gpu, -1);
  slot_.Uncharge(gpu, state_.facts(gpu).context_bytes);
}

Result Driver::HealthOf(ContextTag* context) {
  if (context->error != Result::kSuccess) return context->error;
  sim::SimGpuState& gpu_state = state_.gpu_state(GpuOf(context->device));
  if (gpu_state.poison_epoch.load() != context->epoch) {
    context->error = static_cast<Result>(gpu_state.poison_result.load());
  }
  return context->error;
}

StreamTag* Driver::CreateStream(ContextTag* context, unsigned flags, int priority) {
  auto* stream = new StreamTag();
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = NextId();
  context->streams.insert(stream);
  streams_.insert(stream);
  return stream;
}

void Driver::DestroyStream(StreamTag* stream) {
  graphs_.RemoveStream(stream);
  streams_.erase(stream);
  engine_.Abandon(std::unique_ptr<StreamTag>(stream));
}

Result Driver::ModuleOf(LibraryTag* library, ContextTag* context, ModuleTag** module) {
  if (auto known = library->modules.find(context); known != library->modules.end()) {
    return Put(module, known->second);
  }
  auto created = std::make_unique<ModuleTag>();
  created->context = context;
  created->library = library;
  created->image = library->image;
  const Result result = AllocateGlobals(created.get());
  if (result != Result::kSuccess) return result;
  *module = library->modules[context] = created.get();
  modules_[created.get()] = std::move(created);
  return Result::kSuccess;
}

FunctionTag* Driver::FunctionOf(ModuleTag* module, const std::string& name, const Entry* entry) {
  std::unique_ptr<FunctionTag>& function = module->functions[name];
  if (function == nullptr) {
    function = std::make_unique<FunctionTag>();
    function->module = module;
    if (entry != nullptr) function->entry = *entry;
    function->entry.name = name;
    function->known_kernel = FindKnownKernel(function->entry);
    function->times = ConfiguredTimes(BareName(name));
    functions_.insert(function.get());
  }
  return function.get();
}

KernelTag* Driver::KernelOf(LibraryTag* library, const std::string& name) {
  std::unique_ptr<KernelTag>& kernel = library->kernels[name];
  if (kernel == nullptr) {
    kernel = std::make_unique<KernelTag>(KernelTag{library, name, {}});
    kernels_.insert(kernel.get());
  }
  return kernel.get();
}

KernelTag* Driver::FindKernel(Kernel handle) {
  return kernels_.contains(handle) ? handle : nullptr;
}

FunctionTag* Driver::FindFunction(Function handle, ContextTag* context) {
  if (functions_.contains(handle)) return handle;
  // Programs may pass a kernel of a library as a function.
  const KernelTag* kernel = FindKernel(reinterpret_cast<Kernel>(handle));
  ModuleTag* module = nullptr;
  if (kernel == nullptr || ModuleOf(kernel->library, context, &module) != Result::kSuccess) {
    return nullptr;
  }
  FunctionTag* function =
      FunctionOf(module, kernel->name, kernel->library->image.Find(kernel->name));
  const auto shared = kernel->max_dynamic_shared.find(context->device);
  if (shared != kernel->max_dynamic_shared.end()) function->max_dynamic_shared = shared->second;
  return function;
}

void Driver::Unload(ModuleTag* module) {
  for (const auto& [name, function] : module->functions) functions_.erase(function.get());
  if (module->globals != 0) Release(allocations_.find(module->globals));
  modules_.erase(module);
}

void Driver::Unload(LibraryTag* library) {
  for (const auto& [context, module] : library->modules) Unload(module);
  for (const auto& [name, kernel] : library->kernels) kernels_.erase(kernel.get());
  libraries_.erase(library);
}

std::vector<ContextTag*>& ContextStack() {
  thread_local std::vector<ContextTag*> stack;
  return stack;
}

Call::Call() : driver_(Driver::Get()) {
  result_ = !driver_.initialized() || driver_.forked() ? Result::kNotInitialized : Result::kSuccess;
  if (result_ == Result::kSuccess) lock_ = std::unique_lock(driver_.mutex());
}

Result Call::Wait(ContextTag* context, const TicketRef& ticket) {
  while (true) {
    driver_.engine().Advance(&lock_);
    // Another thread may have destroyed the context meanwhile.
    if (!driver_.IsContext(context)) return Result::kContextIsDestroyed;
    const Result health = driver_.HealthOf(context);
    if (health != Result::kSuccess || ticket->done) return health;
    driver_.engine().Sleep(&lock_, *ticket);
  }
}

Result Call::Wait(StreamTag* stream) {
  if (driver_.graphs().Invalidate(stream)) return Result::kStreamCaptureUnsupported;
  return Wait(stream->context, driver_.engine().EndTicket(stream));
}

Result Call::Wait(ContextTag* context) {
  std::vector<TicketRef> ends;
  if (!context->legacy.queue.idle()) ends.push_back(driver_.engine().EndTicket(&context->legacy));
  for (StreamTag* stream : context->streams) {
    if (!stream->queue.idle()) ends.push_back(driver_.engine().EndTicket(stream));
  }
  Result result = driver_.HealthOf(context);
  for (const TicketRef& end : ends) {
    if (result == Result::kSuccess) result = Wait(context, end);
  }
  return result;
}

void Call::WaitForAll() {
  const std::set<ContextTag*> contexts = driver_.contexts();
  for (ContextTag* context : contexts) {
    if (driver_.IsContext(context)) (void)Wait(context);
  }
}

Result Call::Push(StreamTag* stream, Command command, GraphNodeType type) {
  ContextTag* context = stream->context;
  if (Capture* capture = driver_.graphs().CaptureOf(stream)) {
    return driver_.graphs().AddTo(capture, stream, type, std::move(command));
  }
  driver_.engine().WaitForRoom(stream, &lock_);
  // Another thread may have destroyed the context or the stream meanwhile.
  if (!driver_.IsContext(context)) return Result::kContextIsDestroyed;
  if (!driver_.IsStream(stream)) return Result::kInvalidHandle;
  if (const Result health = driver_.HealthOf(context); health != Result::kSuccess) return health;
  driver_.engine().Push(stream, std::move(command));
  return Result::kSuccess;
}

ContextCall::ContextCall() {
  if (result_ != Result::kSuccess) return;
  std::vector<ContextTag*>& stack = ContextStack();
  if (stack.empty() || stack.back() == nullptr) {
    result_ = Result::kInvalidContext;
    return;
  }
  context_ = stack.back();
  result_ =
      driver().IsContext(context_) ? driver().HealthOf(context_) : Result::kContextIsDestroyed;
}

}  // namespace tessera::cuda
