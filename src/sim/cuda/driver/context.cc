// SPDX-License-Identifier: Apache-2.0
// Contexts: primary contexts, created contexts, and the context stack of each thread.
#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kApiV1 = 3010, kApiV2 = 3020, kApiV3 = 11040, kApiV4 = 12050;
constexpr int kLimits = 7;  // CU_LIMIT_STACK_SIZE … CU_LIMIT_PERSISTING_L2_CACHE_SIZE
constexpr size_t kDefaultLimits[kLimits] = {1024, 7 << 20, 8 << 20, 2, 2048, 64, 0};

constexpr size_t kMaxLimit = size_t(1) << 40;

// Device memory of a limit beyond its default. The simulation allocates it at once; the real driver
// may wait until a kernel needs it.
uint64_t BytesOfLimit(const sim::GpuFacts& gpu, int limit, size_t value) {
  if (limit > kLimitMallocHeap || value <= kDefaultLimits[limit]) return 0;
  const uint64_t more = value - kDefaultLimits[limit];
  const uint64_t stacks = uint64_t(gpu.sm_count) * gpu.max_threads_per_sm;
  const uint64_t bytes = limit == kLimitStack ? more * stacks : more;
  return RoundUp(bytes, kBlockBytes);
}

Result Create(Context* context, unsigned flags, Device device, unsigned api_version) {
  CUDA_ENTER(Call, call);
  if (context == nullptr) return Result::kInvalidValue;
  if (!call->IsDevice(device)) return Result::kInvalidDevice;
  const Result result = call->CreateContext(device, flags, api_version, context);
  if (result == Result::kSuccess) ContextStack().push_back(*context);
  return result;
}

// Destroys the primary context after its commands. `if_unused`: keeps the context if another thread
// retains it meanwhile.
Result DestroyPrimary(Call& call, PrimaryContext* primary, bool if_unused) {
  ContextTag* context = primary->context;
  (void)call.Wait(context);
  // Another thread may have destroyed the context meanwhile.
  if (primary->context != context) return Result::kSuccess;
  if (if_unused && primary->retain_count != 0) return Result::kSuccess;
  primary->context = nullptr;
  primary->retain_count = 0;
  call->DestroyContext(context, call.lock());
  return Result::kSuccess;
}

}  // namespace

CUDA_EXPORT Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  CUDA_ENTER(Call, call);
  if (context == nullptr) return Result::kInvalidValue;
  if (!call->IsDevice(device)) return Result::kInvalidDevice;
  PrimaryContext& primary = call->PrimaryContextOf(device);
  if (primary.context == nullptr) {
    const Result result = call->CreateContext(device, primary.flags, kApiV2, &primary.context);
    if (result != Result::kSuccess) return result;
  }
  ++primary.retain_count;
  *context = primary.context;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuDevicePrimaryCtxRelease_v2(Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  PrimaryContext& primary = call->PrimaryContextOf(device);
  if (primary.retain_count == 0) return Result::kInvalidContext;
  if (--primary.retain_count != 0) return Result::kSuccess;
  return DestroyPrimary(call, &primary, /*if_unused=*/true);
}
CUDA_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)

CUDA_EXPORT Result cuDevicePrimaryCtxReset_v2(Device device) {
  CUDA_ENTER(DeviceCall, call, device);
  PrimaryContext& primary = call->PrimaryContextOf(device);
  if (primary.context == nullptr) return Result::kSuccess;
  return DestroyPrimary(call, &primary, /*if_unused=*/false);
}
CUDA_ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)

CUDA_EXPORT Result cuDevicePrimaryCtxSetFlags_v2(Device device, unsigned flags) {
  CUDA_ENTER(DeviceCall, call, device);
  PrimaryContext& primary = call->PrimaryContextOf(device);
  primary.flags = flags;
  if (primary.context != nullptr) primary.context->flags = flags;
  return Result::kSuccess;
}
CUDA_ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2)

CUDA_EXPORT Result cuDevicePrimaryCtxGetState(Device device, unsigned* flags, int* active) {
  CUDA_ENTER(DeviceCall, call, device);
  PutIf(flags, call->PrimaryContextOf(device).flags);
  PutIf(active, call->PrimaryContextOf(device).context != nullptr);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuCtxCreate(Context* context, unsigned flags, Device device) {
  return Create(context, flags, device, kApiV1);
}
CUDA_EXPORT Result cuCtxCreate_v2(Context* context, unsigned flags, Device device) {
  return Create(context, flags, device, kApiV2);
}
CUDA_EXPORT Result cuCtxCreate_v3(Context* context, void* affinity, int count, unsigned flags,
                                  Device device) {
  if (affinity != nullptr && count > 0) return Result::kNotSupported;  // needs MPS
  return Create(context, flags, device, kApiV3);
}
CUDA_EXPORT Result cuCtxCreate_v4(Context* context, void* parameters, unsigned flags,
                                  Device device) {
  if (parameters != nullptr) return Result::kNotSupported;
  return Create(context, flags, device, kApiV4);
}

CUDA_EXPORT Result cuCtxDestroy_v2(Context context) {
  CUDA_ENTER(Call, call);
  if (!call->IsContext(context)) return Result::kInvalidContext;
  if (call->PrimaryContextOf(context->device).context == context) return Result::kInvalidContext;
  (void)call.Wait(context);
  if (!call->IsContext(context)) return Result::kInvalidContext;
  call->DestroyContext(context, call.lock());
  std::vector<ContextTag*>& stack = ContextStack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return Result::kSuccess;
}
CUDA_ALIAS(cuCtxDestroy, cuCtxDestroy_v2)

CUDA_EXPORT Result cuCtxAttach(Context* context, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (context == nullptr || flags != 0) return Result::kInvalidValue;
  ++call.context()->attach_count;
  *context = call.context();
  return Result::kSuccess;
}
// The last detach destroys the context, which must be current.
CUDA_EXPORT Result cuCtxDetach(Context context) {
  {
    CUDA_ENTER(ContextCall, call);
    if (context != call.context()) return Result::kInvalidContext;
    if (call->PrimaryContextOf(context->device).context == context) return Result::kInvalidContext;
    if (--context->attach_count != 0) return Result::kSuccess;
  }
  return cuCtxDestroy_v2(context);
}

CUDA_EXPORT Result cuCtxPushCurrent_v2(Context context) {
  CUDA_ENTER(Call, call);
  if (!call->IsContext(context)) return Result::kInvalidContext;
  ContextStack().push_back(context);
  return Result::kSuccess;
}
CUDA_ALIAS(cuCtxPushCurrent, cuCtxPushCurrent_v2)

CUDA_EXPORT Result cuCtxPopCurrent_v2(Context* context) {
  CUDA_ENTER(Call, call);
  std::vector<ContextTag*>& stack = ContextStack();
  if (stack.empty()) return Result::kInvalidContext;
  PutIf(context, stack.back());
  stack.pop_back();
  return Result::kSuccess;
}
CUDA_ALIAS(cuCtxPopCurrent, cuCtxPopCurrent_v2)

CUDA_EXPORT Result cuCtxSetCurrent(Context context) {
  CUDA_ENTER(Call, call);
  std::vector<ContextTag*>& stack = ContextStack();
  if (context == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return Result::kSuccess;
  }
  if (!call->IsContext(context)) return Result::kInvalidContext;
  if (stack.empty())
    stack.push_back(context);
  else
    stack.back() = context;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuCtxGetCurrent(Context* context) {
  CUDA_ENTER(Call, call);
  std::vector<ContextTag*>& stack = ContextStack();
  return Put(context, stack.empty() ? nullptr : stack.back());
}

CUDA_EXPORT Result cuCtxGetDevice(Device* device) {
  CUDA_ENTER(ContextCall, call);
  return Put(device, call.context()->device);
}

CUDA_EXPORT Result cuCtxGetDevice_v2(Device* device, Context context) {
  if (context == nullptr) return cuCtxGetDevice(device);
  CUDA_ENTER(Call, call);
  return call->IsContext(context) ? Put(device, context->device) : Result::kInvalidContext;
}

CUDA_EXPORT Result cuCtxGetFlags(unsigned* flags) {
  CUDA_ENTER(ContextCall, call);
  return Put(flags, call.context()->flags);
}

CUDA_EXPORT Result cuCtxGetId(Context context, unsigned long long* id) {
  CUDA_ENTER(ContextCall, call);
  ContextTag* wanted = context == nullptr ? call.context() : context;
  return call->IsContext(wanted) ? Put(id, wanted->id) : Result::kInvalidContext;
}

CUDA_EXPORT Result cuCtxGetApiVersion(Context context, unsigned* version) {
  CUDA_ENTER(ContextCall, call);
  ContextTag* wanted = context == nullptr ? call.context() : context;
  return call->IsContext(wanted) ? Put(version, wanted->api_version) : Result::kInvalidContext;
}

CUDA_EXPORT Result cuCtxSynchronize() {
  CUDA_ENTER(ContextCall, call);
  if (call->graphs().InvalidateByUnsafeCall()) return Result::kStreamCaptureUnsupported;
  return call.Wait(call.context());
}

CUDA_EXPORT Result cuCtxSynchronize_v2(Context context) {
  if (context == nullptr) return cuCtxSynchronize();
  CUDA_ENTER(Call, call);
  if (!call->IsContext(context)) return Result::kInvalidContext;
  if (call->graphs().InvalidateByUnsafeCall()) return Result::kStreamCaptureUnsupported;
  return call.Wait(context);
}

CUDA_EXPORT Result cuCtxSetLimit(int limit, size_t value) {
  CUDA_ENTER(ContextCall, call);
  if (limit < 0 || limit >= kLimits || value > kMaxLimit) return Result::kInvalidValue;
  const uint32_t gpu = call->GpuOf(call.context()->device);
  const uint64_t bytes = BytesOfLimit(call->FactsOf(call.context()->device), limit, value);
  uint64_t& charged_bytes = call.context()->limit_bytes[limit];
  if (bytes > charged_bytes && call->slot().Charge(gpu, bytes - charged_bytes) != 0)
    return Result::kOutOfMemory;
  if (bytes < charged_bytes) call->slot().Uncharge(gpu, charged_bytes - bytes);
  charged_bytes = bytes;
  call.context()->limits[limit] = value;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuCtxGetLimit(size_t* value, int limit) {
  CUDA_ENTER(ContextCall, call);
  if (limit < 0 || limit >= kLimits) return Result::kInvalidValue;
  auto set = call.context()->limits.find(limit);
  return Put(value, set == call.context()->limits.end() ? kDefaultLimits[limit] : set->second);
}

CUDA_EXPORT Result cuCtxGetCacheConfig(int* config) {
  CUDA_ENTER(ContextCall, call);
  return Put(config, 0);
}

CUDA_EXPORT Result cuCtxSetCacheConfig(int) {
  CUDA_ENTER(ContextCall, call);
  return Result::kSuccess;  // a hint
}

CUDA_EXPORT Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CUDA_ENTER(ContextCall, call);
  PutIf(least, 0);
  PutIf(greatest, -5);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuCtxResetPersistingL2Cache() {
  CUDA_ENTER(ContextCall, call);
  return Result::kSuccess;  // a hint
}

CUDA_EXPORT Result cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  if (flags != 0) return Result::kInvalidValue;
  CUDA_ENTER(ContextCall, call);
  if (!call->IsContext(peer) || peer == call.context()) return Result::kInvalidContext;
  const bool is_new = call.context()->peers.insert(peer).second;
  return is_new ? Result::kSuccess : Result::kPeerAccessAlreadyEnabled;
}

CUDA_EXPORT Result cuCtxDisablePeerAccess(Context peer) {
  CUDA_ENTER(ContextCall, call);
  return call.context()->peers.erase(peer) != 0 ? Result::kSuccess : Result::kPeerAccessNotEnabled;
}

}  // namespace tessera::cuda
