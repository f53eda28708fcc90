// SPDX-License-Identifier: Apache-2.0
// The driver's functions that give work to the GPU, wait for it, or change the current context.
#include "src/limiter/compute/launch.h"
#include "src/limiter/loader/driver.h"
#include "src/limiter/memory/graph_memory.h"
#include "src/limiter/process/process.h"

namespace tessera::limiter {

constinit thread_local ThrottledThread current_thread;

}  // namespace tessera::limiter

namespace tessera::cuda {
namespace {

using limiter::Books;
using limiter::current_thread;
using limiter::driver;
using limiter::kGuessedKernelTime;
using limiter::Launch;
using limiter::LaunchStream;
using limiter::LaunchThrottled;
using limiter::Meter;
using limiter::Process;
using limiter::Throttle;
using limiter::TryAdmitLaunch;
using limiter::Work;

Work KernelWork(Function function, uint64_t x, uint64_t y, uint64_t z) {
  return limiter::KernelWork(reinterpret_cast<uintptr_t>(function), x, y, z);
}

template <typename Call>
Result LaunchKernel(Function function, uint64_t x, uint64_t y, uint64_t z, LaunchStream stream,
                    Call call) {
  return Launch([=] { return KernelWork(function, x, y, z); }, kGuessedKernelTime, stream, call);
}

// The memory of graphs with allocation nodes is charged before the launch. Such graphs are rare.
template <typename Call>
Result LaunchGraph(GraphExec graph, LaunchStream stream, Call call) {
  const auto launch = [&] {
    return Launch([=] { return limiter::GraphWork(graph); }, kGuessedKernelTime, stream, call);
  };
  if (!Process::Get().graph_needs().HasEntries()) [[likely]]
    return launch();
  const Result prepared = limiter::PrepareGraph(graph, stream);
  if (prepared != Result::kSuccess) return prepared;
  const Result result = launch();
  limiter::RefreshGraphMemory(graph);
  return result;
}

// Makes a call that waits for work of one stream, or of all streams.
template <typename Call>
Result WaitForGpu(Books::Waited waited, Call call) {
  Meter* const meter = Process::Get().IsLimiting() ? current_thread.meter : nullptr;
  if (meter == nullptr || meter->gate.books().epoch() == 0) return call();
  meter->gate.BeginWait(&current_thread.books);
  const Result result = call();
  const limiter::RelaxedCapture relaxed;
  meter->gate.EndWait(&current_thread.books,
                      result == Result::kSuccess ? waited : Books::Waited::kNot);
  return result;
}

Result AfterContextChange(Result result) {
  current_thread.context_serial = 0;
  return result;
}

}  // namespace

// A launch that must wait or be timed continues in a separate function, so that the usual path
// stays short.
#define KERNEL(name, per_thread_stream, parameters, arguments, grid_x, grid_y, grid_z, stream)   \
  namespace {                                                                                    \
  [[gnu::noinline]] Result name##_throttled parameters {                                         \
    return LaunchThrottled(KernelWork(function, grid_x, grid_y, grid_z), kGuessedKernelTime,     \
                           {stream, per_thread_stream}, [&] { return driver.name arguments; });  \
  }                                                                                              \
  }                                                                                              \
  LIMITER_EXPORT Result name parameters {                                                        \
    if (TryAdmitLaunch([=] { return KernelWork(function, grid_x, grid_y, grid_z); })) [[likely]] \
      return driver.name arguments;                                                              \
    return name##_throttled arguments;                                                           \
  }

#define PARAMETERS                                                                            \
  (Function function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y, \
   unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters, void** extra)
#define ARGUMENTS \
  (function, x, y, z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra)
KERNEL(cuLaunchKernel, false, PARAMETERS, ARGUMENTS, x, y, z, stream)
KERNEL(cuLaunchKernel_ptsz, true, PARAMETERS, ARGUMENTS, x, y, z, stream)
#undef ARGUMENTS
#undef PARAMETERS

#define PARAMETERS                                                                            \
  (Function function, unsigned x, unsigned y, unsigned z, unsigned block_x, unsigned block_y, \
   unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters)
#define ARGUMENTS (function, x, y, z, block_x, block_y, block_z, shared_bytes, stream, parameters)
KERNEL(cuLaunchCooperativeKernel, false, PARAMETERS, ARGUMENTS, x, y, z, stream)
KERNEL(cuLaunchCooperativeKernel_ptsz, true, PARAMETERS, ARGUMENTS, x, y, z, stream)
#undef ARGUMENTS
#undef PARAMETERS

// The driver rejects a missing configuration.
#define PARAMETERS (const LaunchConfig* config, Function function, void** parameters, void** extra)
#define ARGUMENTS (config, function, parameters, extra)
#define OF_CONFIG(field) (config == nullptr ? decltype(config->field)() : config->field)
KERNEL(cuLaunchKernelEx, false, PARAMETERS, ARGUMENTS, OF_CONFIG(grid_x), OF_CONFIG(grid_y),
       OF_CONFIG(grid_z), OF_CONFIG(stream))
KERNEL(cuLaunchKernelEx_ptsz, true, PARAMETERS, ARGUMENTS, OF_CONFIG(grid_x), OF_CONFIG(grid_y),
       OF_CONFIG(grid_z), OF_CONFIG(stream))
#undef OF_CONFIG
#undef ARGUMENTS
#undef PARAMETERS
#undef KERNEL

LIMITER_EXPORT Result cuLaunch(Function function) {
  return LaunchKernel(function, 1, 1, 1, {}, [&] { return driver.cuLaunch(function); });
}

LIMITER_EXPORT Result cuLaunchGrid(Function function, int width, int height) {
  return LaunchKernel(function, unsigned(width), unsigned(height), 1, {},
                      [&] { return driver.cuLaunchGrid(function, width, height); });
}

LIMITER_EXPORT Result cuLaunchGridAsync(Function function, int width, int height, Stream stream) {
  return LaunchKernel(function, unsigned(width), unsigned(height), 1, {.handle = stream},
                      [&] { return driver.cuLaunchGridAsync(function, width, height, stream); });
}

LIMITER_EXPORT Result cuGraphLaunch(GraphExec graph, Stream stream) {
  return LaunchGraph(graph, {.handle = stream},
                     [&] { return driver.cuGraphLaunch(graph, stream); });
}
LIMITER_EXPORT Result cuGraphLaunch_ptsz(GraphExec graph, Stream stream) {
  return LaunchGraph(graph, {.handle = stream, .per_thread = true},
                     [&] { return driver.cuGraphLaunch_ptsz(graph, stream); });
}

// Forgets the handle before the driver can give it to a graph of another thread.
LIMITER_EXPORT Result cuGraphExecDestroy(GraphExec graph) {
  if (Process::Get().IsLimiting()) {
    Throttle::Get().ForgetGraph(graph);
    Process::Get().graph_needs().Remove(graph);
  }
  return driver.cuGraphExecDestroy(graph);
}

LIMITER_EXPORT Result cuModuleUnload(Module module) {
  if (Process::Get().IsLimiting()) Throttle::Get().ForgetFunctions();
  return Process::Get().DestroyCharged(module, [&] { return driver.cuModuleUnload(module); });
}
LIMITER_EXPORT Result cuLibraryUnload(Library library) {
  if (Process::Get().IsLimiting()) Throttle::Get().ForgetFunctions();
  return Process::Get().UnloadLibrary(library, [&] { return driver.cuLibraryUnload(library); });
}

LIMITER_EXPORT Result cuStreamSynchronize(Stream stream) {
  return WaitForGpu(Books::Waited::kStream, [&] { return driver.cuStreamSynchronize(stream); });
}
LIMITER_EXPORT Result cuStreamSynchronize_ptsz(Stream stream) {
  return WaitForGpu(Books::Waited::kStream,
                    [&] { return driver.cuStreamSynchronize_ptsz(stream); });
}
LIMITER_EXPORT Result cuEventSynchronize(Event event) {
  return WaitForGpu(Books::Waited::kStream, [&] { return driver.cuEventSynchronize(event); });
}
LIMITER_EXPORT Result cuCtxSynchronize() {
  return WaitForGpu(Books::Waited::kAll, [&] { return driver.cuCtxSynchronize(); });
}
LIMITER_EXPORT Result cuCtxSynchronize_v2(Context context) {
  return WaitForGpu(Books::Waited::kStream, [&] { return driver.cuCtxSynchronize_v2(context); });
}

#define CAPTURE(name, parameters, arguments)                        \
  LIMITER_EXPORT Result name parameters {                           \
    const Result result = driver.name arguments;                    \
    if (result == Result::kSuccess) Throttle::Get().BeginCapture(); \
    return result;                                                  \
  }
CAPTURE(cuStreamBeginCapture, (Stream stream), (stream))
CAPTURE(cuStreamBeginCapture_ptsz, (Stream stream), (stream))
CAPTURE(cuStreamBeginCapture_v2, (Stream stream, int mode), (stream, mode))
CAPTURE(cuStreamBeginCapture_v2_ptsz, (Stream stream, int mode), (stream, mode))
CAPTURE(cuStreamBeginCaptureToGraph,
        (Stream stream, void* graph, const void* nodes, const void* edges, size_t count, int mode),
        (stream, graph, nodes, edges, count, mode))
CAPTURE(cuStreamBeginCaptureToGraph_ptsz,
        (Stream stream, void* graph, const void* nodes, const void* edges, size_t count, int mode),
        (stream, graph, nodes, edges, count, mode))
#undef CAPTURE

// An invalidated capture ends too, with an error.
constexpr bool EndsCapture(Result result) {
  return result != Result::kNotSupported && result != Result::kInvalidValue &&
         result != Result::kInvalidHandle;
}
LIMITER_EXPORT Result cuStreamEndCapture(Stream stream, Graph* graph) {
  const Result result = driver.cuStreamEndCapture(stream, graph);
  if (EndsCapture(result)) Throttle::Get().EndCapture();
  return result;
}
LIMITER_EXPORT Result cuStreamEndCapture_ptsz(Stream stream, Graph* graph) {
  const Result result = driver.cuStreamEndCapture_ptsz(stream, graph);
  if (EndsCapture(result)) Throttle::Get().EndCapture();
  return result;
}

LIMITER_EXPORT Result cuCtxSetCurrent(Context context) {
  return AfterContextChange(driver.cuCtxSetCurrent(context));
}
LIMITER_EXPORT Result cuCtxPushCurrent(Context context) {
  return AfterContextChange(driver.cuCtxPushCurrent(context));
}
LIMITER_EXPORT Result cuCtxPushCurrent_v2(Context context) {
  return AfterContextChange(driver.cuCtxPushCurrent_v2(context));
}
LIMITER_EXPORT Result cuCtxPopCurrent(Context* context) {
  return AfterContextChange(driver.cuCtxPopCurrent(context));
}
LIMITER_EXPORT Result cuCtxPopCurrent_v2(Context* context) {
  return AfterContextChange(driver.cuCtxPopCurrent_v2(context));
}
namespace {
template <typename Create>
Result NewContext(Context* context, Device device, Create create) {
  return AfterContextChange(Process::Get().CreateContext(context, device, create));
}
}  // namespace

LIMITER_EXPORT Result cuCtxCreate(Context* context, unsigned flags, Device device) {
  return NewContext(context, device, [&] { return driver.cuCtxCreate(context, flags, device); });
}
LIMITER_EXPORT Result cuCtxCreate_v2(Context* context, unsigned flags, Device device) {
  return NewContext(context, device, [&] { return driver.cuCtxCreate_v2(context, flags, device); });
}
LIMITER_EXPORT Result cuCtxCreate_v3(Context* context, void* affinity, int count, unsigned flags,
                                     Device device) {
  return NewContext(context, device,
                    [&] { return driver.cuCtxCreate_v3(context, affinity, count, flags, device); });
}
LIMITER_EXPORT Result cuCtxCreate_v4(Context* context, void* parameters, unsigned flags,
                                     Device device) {
  return NewContext(context, device,
                    [&] { return driver.cuCtxCreate_v4(context, parameters, flags, device); });
}

}  // namespace tessera::cuda
