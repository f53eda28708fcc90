// SPDX-License-Identifier: Apache-2.0
// Modules and libraries. function.cc has their functions, module_globals.cc their variables.
#include <algorithm>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

Result LoadModule(Module* module, const void* image, size_t size) {
  CUDA_ENTER(ContextCall, call);
  if (module == nullptr) return Result::kInvalidValue;
  auto created = std::make_unique<ModuleTag>();
  created->context = call.context();
  const int cc = CcOf(call->FactsOf(call.context()->device));
  const int cuda_version = int(call->state().file().cuda_version);
  Result result = ReadImage(image, size, cc, cuda_version, &created->image);
  if (result == Result::kSuccess) result = call->AllocateGlobals(created.get());
  if (result != Result::kSuccess) return result;
  *module = created.get();
  call->modules()[created.get()] = std::move(created);
  return Result::kSuccess;
}

Result LoadLibrary(Library* library, const void* image, size_t size) {
  CUDA_ENTER(Call, call);
  if (library == nullptr) return Result::kInvalidValue;
  auto created = std::make_unique<LibraryTag>();
  // A library must run on the device with the highest compute capability.
  int cc = 0;
  for (int i = 0; i < call->device_count(); ++i) cc = std::max(cc, CcOf(call->FactsOf(i)));
  const int cuda_version = int(call->state().file().cuda_version);
  const Result result = ReadImage(image, size, cc, cuda_version, &created->image);
  if (result != Result::kSuccess) return result;
  *library = created.get();
  call->libraries()[created.get()] = std::move(created);
  return Result::kSuccess;
}

}  // namespace

CUDA_EXPORT Result cuModuleLoadData(Module* module, const void* image) {
  return LoadModule(module, image, kUnknownSize);
}
CUDA_EXPORT Result cuModuleLoadDataEx(Module* module, const void* image, unsigned, int*, void**) {
  return LoadModule(module, image, kUnknownSize);
}
CUDA_ALIAS(cuModuleLoadFatBinary, cuModuleLoadData)

CUDA_EXPORT Result cuModuleLoad(Module* module, const char* file) {
  std::string image;
  if (file == nullptr) return Result::kInvalidValue;
  if (!ReadWholeFile(file, &image)) return Result::kFileNotFound;
  return LoadModule(module, image.c_str(), image.size());
}

CUDA_EXPORT Result cuModuleUnload(Module module) {
  CUDA_ENTER(ContextCall, call);
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  // A module of cuLibraryGetModule is only unloaded with its library.
  if (module->library != nullptr) return Result::kNotPermitted;
  call->Unload(module);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  CUDA_ENTER(ContextCall, call);
  if (function == nullptr || name == nullptr || *name == '\0') return Result::kInvalidValue;
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  const Entry* entry = module->image.Find(name);
  if (entry == nullptr && !module->image.accepts_any_name) return Result::kNotFound;
  *function = call->FunctionOf(module, name, entry);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuModuleGetFunctionCount(unsigned* count, Module module) {
  CUDA_ENTER(ContextCall, call);
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  return Put(count, module->image.entries.size());
}

// Writes at most `count` functions, in the order of the image.
CUDA_EXPORT Result cuModuleEnumerateFunctions(Function* functions, unsigned count, Module module) {
  CUDA_ENTER(ContextCall, call);
  if (functions == nullptr || count == 0) return Result::kInvalidValue;
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  for (size_t i = 0; i < count && i < module->image.entries.size(); ++i) {
    const Entry& entry = module->image.entries[i];
    functions[i] = call->FunctionOf(module, entry.name, &entry);
  }
  return Result::kSuccess;
}

CUDA_EXPORT Result cuLibraryLoadData(Library* library, const void* image, int*, void**, unsigned,
                                     int*, void**, unsigned) {
  return LoadLibrary(library, image, kUnknownSize);
}

CUDA_EXPORT Result cuLibraryLoadFromFile(Library* library, const char* file, int*, void**, unsigned,
                                         int*, void**, unsigned) {
  std::string image;
  if (file == nullptr) return Result::kInvalidValue;
  if (!ReadWholeFile(file, &image)) return Result::kFileNotFound;
  return LoadLibrary(library, image.c_str(), image.size());
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
  if (library->image.Find(name) == nullptr && !library->image.accepts_any_name)
    return Result::kNotFound;
  *kernel = call->KernelOf(library, name);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuLibraryEnumerateKernels(Kernel* kernels, unsigned count, Library library) {
  CUDA_ENTER(Call, call);
  if (kernels == nullptr || count == 0) return Result::kInvalidValue;
  if (!call->libraries().contains(library)) return Result::kInvalidHandle;
  for (size_t i = 0; i < count && i < library->image.entries.size(); ++i) {
    kernels[i] = call->KernelOf(library, library->image.entries[i].name);
  }
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

}  // namespace tessera::cuda
