// SPDX-License-Identifier: Apache-2.0
// The driver's functions that load modules. The driver does not report the memory that a module
// takes. Variables are charged if the image states their size (image_size.h) and they are too large
// to share a block. The agent reads the rest from NVML as unaccounted memory. If the container
// reaches its limit because of unaccounted memory, no more modules are loaded.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/limiter/loader/driver.h"
#include "src/limiter/memory/image_size.h"
#include "src/limiter/process/process.h"
#include "src/limiter/tables/blocks.h"

namespace tessera::cuda {
namespace {

using limiter::Contexts;
using limiter::driver;
using limiter::Process;
using limiter::VariableBytesOf;

constexpr char kModuleLoad[] = "the load of a module";

// Returns 0 also for a file that cannot be read: the driver reports the error.
uint64_t VariableBytesOfFile(const char* path) {
  if (path == nullptr || !Process::Get().IsLimiting()) return 0;
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  // lseek instead of fstat, which older C libraries do not export.
  const off_t end = fd < 0 ? 0 : ::lseek(fd, 0, SEEK_END);
  uint64_t bytes = 0;
  if (end > 0) {
    const auto size = size_t(end);
    void* image = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image != MAP_FAILED) {
      bytes = VariableBytesOf(image, size);
      ::munmap(image, size);
    }
  }
  if (fd >= 0) ::close(fd);
  return bytes;
}

uint64_t VariableBytesIfLimited(const void* image) {
  return Process::Get().IsLimiting() ? VariableBytesOf(image, SIZE_MAX) : 0;
}

template <typename Load>
Result LoadModule(Module* module, uint64_t variable_bytes, Load load) {
  Process& process = Process::Get();
  const Contexts::Info context = process.CurrentContext();
  if (context.gpu < 0 || module == nullptr) return load();
  if (!process.HasRoom(context.gpu, kModuleLoad)) return Result::kOutOfMemory;
  if (variable_bytes <= limiter::kMaxSmallBytes) return load();
  const uint64_t reserved = limiter::RoundToBlocks(variable_bytes);
  if (!process.Reserve(context.gpu, reserved, "a module with variables")) {
    return Result::kOutOfMemory;
  }
  Result result = load();
  if (result == Result::kSuccess &&
      !process.charges().Add(*module, context, variable_bytes, &process.memory_budget())) {
    driver.cuModuleUnload(*module);
    result = Result::kOutOfMemory;
  }
  process.memory_budget().Cancel(context.gpu, reserved);
  return result;
}

// The driver allocates the variables in each context: at once, when the context is created, or when
// the context first uses the library. The first use may be a launch, which is too late to report a
// lack of memory. So the variables are charged in all contexts before the load.
template <typename Load>
Result LoadLibrary(Library* library, uint64_t variable_bytes, Load load) {
  Process& process = Process::Get();
  if (!process.IsLimiting() || library == nullptr) return load();
  if (!process.HasRoom(process.CurrentContext().gpu, kModuleLoad)) return Result::kOutOfMemory;
  if (variable_bytes <= limiter::kMaxSmallBytes) return load();
  const limiter::Libraries::LoadedLibrary info{process.libraries().NewId(), variable_bytes};
  if (!process.ChargeInContexts(info)) return Result::kOutOfMemory;
  Result result = load();
  limiter::Libraries::LoadedLibrary replaced;
  if (result == Result::kSuccess && !process.libraries().Add(*library, info, &replaced)) {
    driver.cuLibraryUnload(*library);
    result = Result::kOutOfMemory;
  }
  if (result != Result::kSuccess) process.EndChargeInContexts(info);
  if (replaced.id != 0) process.EndChargeInContexts(replaced);
  return result;
}

}  // namespace

LIMITER_EXPORT Result cuModuleLoad(Module* module, const char* file) {
  return LoadModule(module, VariableBytesOfFile(file),
                    [&] { return driver.cuModuleLoad(module, file); });
}
LIMITER_EXPORT Result cuModuleLoadData(Module* module, const void* image) {
  return LoadModule(module, VariableBytesIfLimited(image),
                    [&] { return driver.cuModuleLoadData(module, image); });
}
LIMITER_EXPORT Result cuModuleLoadDataEx(Module* module, const void* image, unsigned count,
                                         int* options, void** values) {
  return LoadModule(module, VariableBytesIfLimited(image), [&] {
    return driver.cuModuleLoadDataEx(module, image, count, options, values);
  });
}
LIMITER_EXPORT Result cuModuleLoadFatBinary(Module* module, const void* image) {
  // The driver takes PTX text and cubins here, too.
  return LoadModule(module, VariableBytesIfLimited(image),
                    [&] { return driver.cuModuleLoadFatBinary(module, image); });
}
LIMITER_EXPORT Result cuLibraryLoadData(Library* library, const void* image, int* jit_options,
                                        void** jit_values, unsigned jit_count, int* options,
                                        void** values, unsigned count) {
  return LoadLibrary(library, VariableBytesIfLimited(image), [&] {
    return driver.cuLibraryLoadData(library, image, jit_options, jit_values, jit_count, options,
                                    values, count);
  });
}
LIMITER_EXPORT Result cuLibraryLoadFromFile(Library* library, const char* file, int* jit_options,
                                            void** jit_values, unsigned jit_count, int* options,
                                            void** values, unsigned count) {
  return LoadLibrary(library, VariableBytesOfFile(file), [&] {
    return driver.cuLibraryLoadFromFile(library, file, jit_options, jit_values, jit_count, options,
                                        values, count);
  });
}

LIMITER_EXPORT Result cuFuncLoad(Function function) {
  Process& process = Process::Get();
  const int gpu = process.CurrentContext().gpu;
  if (!process.HasRoom(gpu, "the load of a function")) return Result::kOutOfMemory;
  return driver.cuFuncLoad(function);
}

}  // namespace tessera::cuda
