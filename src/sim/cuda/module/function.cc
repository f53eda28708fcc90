// SPDX-License-Identifier: Apache-2.0
// Kernels of libraries and functions of modules: attributes and parameters.
#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

// CUfunction_attribute
constexpr int kMaxThreads = 0, kShared = 1, kConst = 2, kLocal = 3, kRegisters = 4, kPtxVersion = 5,
              kBinaryVersion = 6, kCacheModeCa = 7, kMaxDynamicShared = 8, kCarveout = 9,
              kLastFunctionAttribute = 15;
constexpr int kDefaultDynamicShared = 49152;
constexpr int kRegistersOfAKernel = 32;

Result Attribute(int max_dynamic_shared, int attribute, int cc, int* value) {
  switch (attribute) {
    case kMaxThreads:
      return Put(value, 1024);
    case kRegisters:
      return Put(value, kRegistersOfAKernel);
    case kPtxVersion:
    case kBinaryVersion:
      return Put(value, cc);
    case kMaxDynamicShared:
      return Put(value, max_dynamic_shared != 0 ? max_dynamic_shared : kDefaultDynamicShared);
    case kCarveout:
      return Put(value, -1);
    case kShared:
    case kConst:
    case kLocal:
    case kCacheModeCa:
      return Put(value, 0);
    default:
      return attribute > kCarveout && attribute <= kLastFunctionAttribute ? Put(value, 0)
                                                                          : Result::kInvalidValue;
  }
}

Result SetAttribute(const sim::GpuFacts& gpu, int attribute, int value, int* max_dynamic_shared) {
  if (attribute == kCarveout) return Result::kSuccess;  // a hint
  const bool fits = value >= 0 && uint32_t(value) <= gpu.shared_per_block_optin;
  if (attribute != kMaxDynamicShared || !fits) return Result::kInvalidValue;
  *max_dynamic_shared = value;
  return Result::kSuccess;
}

Result ParameterInfo(const Entry* entry, size_t index, size_t* offset, size_t* size) {
  // The contents of a fat binary are unknown.
  if (entry == nullptr || !entry->parameters_known) return Result::kNotSupported;
  if (offset == nullptr || index >= entry->parameters.size()) return Result::kInvalidValue;
  *offset = entry->parameters[index].offset;
  PutIf(size, entry->parameters[index].size);
  return Result::kSuccess;
}

}  // namespace

CUDA_EXPORT Result cuKernelGetFunction(Function* function, Kernel kernel) {
  CUDA_ENTER(ContextCall, call);
  if (function == nullptr) return Result::kInvalidValue;
  FunctionTag* found = call->FindFunction(reinterpret_cast<Function>(kernel), call.context());
  if (found == nullptr) return Result::kInvalidHandle;
  *function = found;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuKernelGetName(const char** name, Kernel kernel) {
  CUDA_ENTER(Call, call);
  KernelTag* found = call->FindKernel(kernel);
  return found == nullptr ? Result::kInvalidHandle : Put(name, found->name.c_str());
}

CUDA_EXPORT Result cuKernelGetAttribute(int* value, int attribute, Kernel kernel, Device device) {
  CUDA_ENTER(Call, call);
  KernelTag* found = call->FindKernel(kernel);
  if (found == nullptr) return Result::kInvalidHandle;
  if (!call->IsDevice(device)) return Result::kInvalidDevice;
  return Attribute(found->max_dynamic_shared[device], attribute, CcOf(call->FactsOf(device)),
                   value);
}

CUDA_EXPORT Result cuKernelSetAttribute(int attribute, int value, Kernel kernel, Device device) {
  CUDA_ENTER(Call, call);
  KernelTag* found = call->FindKernel(kernel);
  if (found == nullptr) return Result::kInvalidHandle;
  if (!call->IsDevice(device)) return Result::kInvalidDevice;
  return SetAttribute(call->FactsOf(device), attribute, value, &found->max_dynamic_shared[device]);
}

CUDA_EXPORT Result cuKernelSetCacheConfig(Kernel kernel, int, Device device) {
  CUDA_ENTER(Call, call);
  if (call->FindKernel(kernel) == nullptr) return Result::kInvalidHandle;
  return call->IsDevice(device) ? Result::kSuccess : Result::kInvalidDevice;  // a hint
}

CUDA_EXPORT Result cuKernelGetLibrary(Library* library, Kernel kernel) {
  CUDA_ENTER(Call, call);
  KernelTag* found = call->FindKernel(kernel);
  return found == nullptr ? Result::kInvalidHandle : Put(library, found->library);
}

CUDA_EXPORT Result cuKernelGetParamInfo(Kernel kernel, size_t index, size_t* offset, size_t* size) {
  CUDA_ENTER(Call, call);
  KernelTag* found = call->FindKernel(kernel);
  if (found == nullptr) return Result::kInvalidHandle;
  return ParameterInfo(found->library->image.Find(found->name), index, offset, size);
}

CUDA_EXPORT Result cuFuncGetAttribute(int* value, int attribute, Function function) {
  CUDA_ENTER(FunctionCall, call, function);
  return Attribute(call.function->max_dynamic_shared, attribute,
                   CcOf(call->FactsOf(call.context()->device)), value);
}

CUDA_EXPORT Result cuFuncSetAttribute(Function function, int attribute, int value) {
  CUDA_ENTER(FunctionCall, call, function);
  const sim::GpuFacts& facts = call->FactsOf(call.context()->device);
  return SetAttribute(facts, attribute, value, &call.function->max_dynamic_shared);
}

CUDA_EXPORT Result cuFuncGetParamInfo(Function function, size_t index, size_t* offset,
                                      size_t* size) {
  CUDA_ENTER(FunctionCall, call, function);
  return ParameterInfo(&call.function->entry, index, offset, size);
}

CUDA_EXPORT Result cuFuncSetCacheConfig(Function function, int) {
  CUDA_ENTER(FunctionCall, call, function);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuFuncGetModule(Module* module, Function function) {
  CUDA_ENTER(FunctionCall, call, function);
  return Put(module, call.function->module);
}

CUDA_EXPORT Result cuFuncGetName(const char** name, Function function) {
  CUDA_ENTER(FunctionCall, call, function);
  return Put(name, call.function->entry.name.c_str());
}

CUDA_EXPORT Result cuFuncIsLoaded(int* state, Function function) {
  CUDA_ENTER(FunctionCall, call, function);
  return Put(state, 1);
}

CUDA_EXPORT Result cuFuncLoad(Function function) {
  CUDA_ENTER(FunctionCall, call, function);
  return Result::kSuccess;
}

}  // namespace tessera::cuda
