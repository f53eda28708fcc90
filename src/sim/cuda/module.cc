// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, kernels and functions.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "src/sim/cuda/driver.h"

namespace tessera::cuda {
namespace {

constexpr long kLargestFile = 256 << 20;

// CUfunction_attribute
constexpr int kMaxThreads = 0, kShared = 1, kConst = 2, kLocal = 3, kRegisters = 4, kPtxVersion = 5,
              kBinaryVersion = 6, kCacheModeCa = 7, kMaxDynamicShared = 8, kCarveout = 9,
              kLastFunctionAttribute = 15;
constexpr int kDefaultDynamicShared = 49152;
constexpr int kRegistersOfAKernel = 32;

// The whole file, NUL-terminated for PTX; false with errno.
bool Slurp(const char* path, std::string* text) {
  FILE* file = fopen(path, "rbe");
  if (file == nullptr) return false;
  char buffer[1 << 14];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), file)) > 0 && long(text->size()) < kLargestFile;) {
    text->append(buffer, n);
  }
  fclose(file);
  return true;
}

int CcOf(const sim::GpuFacts& facts) { return int(facts.cc_major * 10 + facts.cc_minor); }

Result LoadModule(Module* module, const void* image) {
  CUDA_ENTER(ContextCall, call);
  if (module == nullptr) return Result::kInvalidValue;
  auto made = std::make_unique<ModuleTag>();
  made->context = call.context();
  const int cc = CcOf(call->FactsOf(call.context()->device));
  const int cuda_version = int(call->state().file().cuda_version);
  Result result = ReadImage(image, cc, cuda_version, &made->image);
  if (result == Result::kSuccess) result = call->PlaceGlobals(made.get());
  if (result != Result::kSuccess) return result;
  *module = made.get();
  call->modules()[made.get()] = std::move(made);
  return Result::kSuccess;
}

Result LoadLibrary(Library* library, const void* image) {
  CUDA_ENTER(Call, call);
  if (library == nullptr) return Result::kInvalidValue;
  auto made = std::make_unique<LibraryTag>();
  // A library is for all devices: it must run on the best one; each load checks its own.
  int cc = 0;
  for (int i = 0; i < call->device_count(); ++i) cc = std::max(cc, CcOf(call->FactsOf(i)));
  const int cuda_version = int(call->state().file().cuda_version);
  const Result result = ReadImage(image, cc, cuda_version, &made->image);
  if (result != Result::kSuccess) return result;
  *library = made.get();
  call->libraries()[made.get()] = std::move(made);
  return Result::kSuccess;
}

Result Attribute(const FunctionTag& function, int attribute, int cc, int* value) {
  switch (attribute) {
    case kMaxThreads: return Put(value, 1024);
    case kRegisters: return Put(value, kRegistersOfAKernel);
    case kPtxVersion: case kBinaryVersion: return Put(value, cc);
    case kMaxDynamicShared:
      return Put(value, function.max_dynamic_shared != 0 ? function.max_dynamic_shared
                                                         : kDefaultDynamicShared);
    case kCarveout: return Put(value, -1);
    case kShared: case kConst: case kLocal: case kCacheModeCa: return Put(value, 0);
    default:
      return attribute > kCarveout && attribute <= kLastFunctionAttribute ? Put(value, 0)
                                                                  : Result::kInvalidValue;
  }
}

}  // namespace

CUDA_EXPORT Result cuModuleLoadData(Module* module, const void* image) {
  return LoadModule(module, image);
}
CUDA_EXPORT Result cuModuleLoadDataEx(Module* module, const void* image, unsigned, int*, void**) {
  return LoadModule(module, image);
}
CUDA_ALIAS(cuModuleLoadFatBinary, cuModuleLoadData)

CUDA_EXPORT Result cuModuleLoad(Module* module, const char* file) {
  std::string image;
  if (file == nullptr) return Result::kInvalidValue;
  return Slurp(file, &image) ? LoadModule(module, image.c_str()) : Result::kFileNotFound;
}

CUDA_EXPORT Result cuModuleUnload(Module module) {
  CUDA_ENTER(ContextCall, call);
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  // A module from cuLibraryGetModule goes with its library alone.
  if (module->library != nullptr) return Result::kNotPermitted;
  call->Unload(module);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  CUDA_ENTER(ContextCall, call);
  if (function == nullptr || name == nullptr || *name == '\0') return Result::kInvalidValue;
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  const Entry* entry = module->image.Find(name);
  if (entry == nullptr && !module->image.any_name) return Result::kNotFound;
  *function = call->FunctionOf(module, name, entry);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuModuleGetFunctionCount(unsigned* count, Module module) {
  CUDA_ENTER(ContextCall, call);
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  return Put(count, module->image.entries.size());
}

CUDA_EXPORT Result cuLibraryLoadData(Library* library, const void* image, int*, void**, unsigned,
                                     int*, void**, unsigned) {
  return LoadLibrary(library, image);
}

CUDA_EXPORT Result cuLibraryLoadFromFile(Library* library, const char* file, int*, void**, unsigned,
                                         int*, void**, unsigned) {
  std::string image;
  if (file == nullptr) return Result::kInvalidValue;
  return Slurp(file, &image) ? LoadLibrary(library, image.c_str()) : Result::kFileNotFound;
}

CUDA_EXPORT Result cuLibraryUnload(Library library) {
  CUDA_ENTER(Call, call);
  if (!call->libraries().contains(library)) return Result::kInvalidHandle;
  call->Unload(library);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuLibraryGetKernel(Kernel* kernel, Library library, const char* name) {
  CUDA_ENTER(Call, call);
  if (kernel == nullptr || name == nullptr || *name == '\0') return Result::kInvalidValue;
  if (!call->libraries().contains(library)) return Result::kInvalidHandle;
  if (library->image.Find(name) == nullptr && !library->image.any_name) return Result::kNotFound;
  *kernel = call->KernelOf(library, name);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuLibraryGetModule(Module* module, Library library) {
  CUDA_ENTER(ContextCall, call);
  if (module == nullptr) return Result::kInvalidValue;
  if (!call->libraries().contains(library)) return Result::kInvalidHandle;
  return call->ModuleOf(library, call.context(), module);
}

CUDA_EXPORT Result cuLibraryGetKernelCount(unsigned* count, Library library) {
  CUDA_ENTER(Call, call);
  if (!call->libraries().contains(library)) return Result::kInvalidHandle;
  return Put(count, library->image.entries.size());
}

CUDA_EXPORT Result cuKernelGetFunction(Function* function, Kernel kernel) {
  CUDA_ENTER(ContextCall, call);
  if (function == nullptr) return Result::kInvalidValue;
  FunctionTag* found =
      call->FindFunction(reinterpret_cast<Function>(kernel), call.context());
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
  if (call->FindKernel(kernel) == nullptr) return Result::kInvalidHandle;
  if (!call->IsDevice(device)) return Result::kInvalidDevice;
  return Attribute(FunctionTag(), attribute, CcOf(call->FactsOf(device)), value);
}

CUDA_EXPORT Result cuKernelSetAttribute(int attribute, int, Kernel kernel, Device) {
  CUDA_ENTER(Call, call);
  if (call->FindKernel(kernel) == nullptr) return Result::kInvalidHandle;
  return attribute == kMaxDynamicShared || attribute == kCarveout ? Result::kSuccess
                                                                  : Result::kInvalidValue;
}

CUDA_EXPORT Result cuFuncGetAttribute(int* value, int attribute, Function function) {
  CUDA_ENTER(ContextCall, call);
  FunctionTag* found = call->FindFunction(function, call.context());
  if (found == nullptr) return Result::kInvalidHandle;
  return Attribute(*found, attribute, CcOf(call->FactsOf(call.context()->device)), value);
}

CUDA_EXPORT Result cuFuncSetAttribute(Function function, int attribute, int value) {
  CUDA_ENTER(ContextCall, call);
  FunctionTag* found = call->FindFunction(function, call.context());
  if (found == nullptr) return Result::kInvalidHandle;
  const sim::GpuFacts& facts = call->FactsOf(call.context()->device);
  if (attribute == kCarveout) return Result::kSuccess;  // a hint
  if (attribute != kMaxDynamicShared || value < 0 ||
      uint32_t(value) > facts.shared_per_block_optin) {
    return Result::kInvalidValue;
  }
  found->max_dynamic_shared = value;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuFuncSetCacheConfig(Function function, int) {
  CUDA_ENTER(ContextCall, call);
  const bool known = call->FindFunction(function, call.context()) != nullptr;
  return known ? Result::kSuccess : Result::kInvalidHandle;
}

CUDA_EXPORT Result cuFuncGetModule(Module* module, Function function) {
  CUDA_ENTER(ContextCall, call);
  FunctionTag* found = call->FindFunction(function, call.context());
  return found == nullptr ? Result::kInvalidHandle : Put(module, found->module);
}

CUDA_EXPORT Result cuFuncGetName(const char** name, Function function) {
  CUDA_ENTER(ContextCall, call);
  FunctionTag* found = call->FindFunction(function, call.context());
  return found == nullptr ? Result::kInvalidHandle : Put(name, found->entry.name.c_str());
}

CUDA_EXPORT Result cuFuncIsLoaded(int* state, Function function) {
  CUDA_ENTER(ContextCall, call);
  const bool known = call->FindFunction(function, call.context()) != nullptr;
  return known ? Put(state, 1) : Result::kInvalidHandle;
}

CUDA_EXPORT Result cuFuncLoad(Function function) {
  CUDA_ENTER(ContextCall, call);
  const bool known = call->FindFunction(function, call.context()) != nullptr;
  return known ? Result::kSuccess : Result::kInvalidHandle;
}

}  // namespace tessera::cuda
