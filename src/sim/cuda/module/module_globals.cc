// SPDX-License-Identifier: Apache-2.0
// The variables of modules. All variables of a module share one allocation.
#include <string.h>

#include <algorithm>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

// Calls `visit` with each variable and its offset in the memory of the module. Returns the total
// bytes.
template <typename Visit>
uint64_t LayOutGlobals(const Image& image, Visit visit) {
  uint64_t offset = 0;
  for (const Global& global : image.globals) {
    offset = (offset + global.align - 1) / global.align * global.align;
    visit(global, offset);
    offset += global.size;
  }
  return offset;
}

Result GetGlobal(const ModuleTag& module, const char* name, DevicePtr* pointer, size_t* bytes) {
  uint64_t size = 0;
  const DevicePtr found = Driver::FindGlobal(module, name, &size);
  if (found == 0) return Result::kNotFound;
  PutIf(pointer, found);
  PutIf(bytes, size);
  return Result::kSuccess;
}

}  // namespace

Result Driver::AllocateGlobals(ModuleTag* module) {
  // Sums of smaller sizes do not overflow.
  const uint64_t capacity = FactsOf(module->context->device).memory_bytes;
  const auto is_too_large = [=](const Global& global) {
    return global.size > capacity || global.align > capacity;
  };
  if (std::ranges::any_of(module->image.globals, is_too_large)) return Result::kOutOfMemory;
  const uint64_t bytes = LayOutGlobals(module->image, [](const Global&, uint64_t) {});
  if (bytes == 0) return Result::kSuccess;
  const Result result =
      Allocate(module->context, bytes, MemoryKind::kDevice, nullptr, &module->globals);
  if (result != Result::kSuccess) return result;
  Allocation& memory = allocations_[module->globals];
  memory.is_module_memory = true;
  // Memory outside of shared blocks is zero already, so zeros are not written there.
  const bool is_zeroed = memory.block == 0;
  LayOutGlobals(module->image, [&](const Global& global, uint64_t offset) {
    char* const place = reinterpret_cast<char*>(module->globals + offset);
    const size_t initial_bytes = std::min<size_t>(global.initial.size(), global.size);
    memcpy(place, global.initial.data(), initial_bytes);
    if (!is_zeroed) memset(place + initial_bytes, 0, global.size - initial_bytes);
  });
  return Result::kSuccess;
}

DevicePtr Driver::FindGlobal(const ModuleTag& module, std::string_view name, uint64_t* bytes) {
  DevicePtr found = 0;
  LayOutGlobals(module.image, [&](const Global& global, uint64_t offset) {
    if (global.name != name) return;
    found = module.globals + offset;
    *bytes = global.size;
  });
  return found;
}

CUDA_EXPORT Result cuModuleGetGlobal_v2(DevicePtr* pointer, size_t* bytes, Module module,
                                        const char* name) {
  CUDA_ENTER(ContextCall, call);
  if (name == nullptr) return Result::kInvalidValue;
  if (!call->modules().contains(module)) return Result::kInvalidHandle;
  return GetGlobal(*module, name, pointer, bytes);
}

CUDA_EXPORT Result cuLibraryGetGlobal(DevicePtr* pointer, size_t* bytes, Library library,
                                      const char* name) {
  CUDA_ENTER(ContextCall, call);
  if (name == nullptr) return Result::kInvalidValue;
  if (!call->libraries().contains(library)) return Result::kInvalidHandle;
  ModuleTag* module = nullptr;
  const Result result = call->ModuleOf(library, call.context(), &module);
  return result == Result::kSuccess ? GetGlobal(*module, name, pointer, bytes) : result;
}

}  // namespace tessera::cuda
