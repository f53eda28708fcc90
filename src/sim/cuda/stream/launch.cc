// SPDX-License-Identifier: Apache-2.0
// Launches and occupancy. The duration of a known kernel (kernels.h) depends on its memory traffic,
// the duration of any other kernel on its waves of blocks. $SIMGPU_KERNEL_NS sets durations
// (kernel_times.h).
#include "src/sim/cuda/stream/launch.h"

#include <string.h>

#include <algorithm>
#include <set>
#include <vector>

#include "src/sim/cuda/stream/kernels.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kLaunchNs = 2'500;
constexpr uint64_t kWaveNs = 2'000;  // unknown kernels: duration of a wave of blocks
constexpr uint64_t kMaxThreadsPerBlock = 1024;
constexpr unsigned kDefaultSharedBytes = 49152;
constexpr int kMaxClusterBlocks = 8;  // maximum on every GPU with clusters

Result CheckShape(const LaunchShape& shape, const FunctionTag& function) {
  if (shape.blocks() == 0 || shape.threads_of_block() == 0) return Result::kInvalidValue;
  if (shape.grid[0] > 2147483647u || shape.grid[1] > 65535 || shape.grid[2] > 65535 ||
      shape.block[0] > 1024 || shape.block[1] > 1024 || shape.block[2] > 64 ||
      shape.threads_of_block() > kMaxThreadsPerBlock) {
    return Result::kInvalidValue;
  }
  const unsigned max_shared = std::max(kDefaultSharedBytes, unsigned(function.max_dynamic_shared));
  return shape.shared_bytes > max_shared ? Result::kInvalidValue : Result::kSuccess;
}

uint64_t ResidentThreads(const sim::GpuFacts& gpu) {
  return std::max<uint64_t>(1, uint64_t(gpu.sm_count) * gpu.max_threads_per_sm);
}

uint64_t DurationOf(const sim::GpuFacts& gpu, const LaunchShape& shape, FunctionTag* function,
                    uint64_t bytes) {
  if (!function->times.empty()) return function->times.Next();
  if (bytes != 0 && gpu.memory_bytes_per_second != 0) {
    return kLaunchNs + uint64_t(double(bytes) * 1e9 / double(gpu.memory_bytes_per_second));
  }
  const uint64_t resident = ResidentThreads(gpu);
  const uint64_t waves = (shape.blocks() * shape.threads_of_block() + resident - 1) / resident;
  return kLaunchNs + waves * kWaveNs;
}

// The part of the GPU that the kernel fills, as Command::share.
uint32_t ShareOf(const sim::GpuFacts& gpu, const LaunchShape& shape) {
  const uint64_t threads = shape.blocks() * shape.threads_of_block();
  const uint64_t share = threads * kWholeGpu / ResidentThreads(gpu);
  return uint32_t(std::clamp<uint64_t>(share, 1, kWholeGpu));
}

// Copies parameters into one buffer in the layout of the entry.
Result PackParameters(const Entry& entry, void** parameters, void** extra, unsigned char* buffer,
                      bool* has_parameters) {
  *has_parameters = false;
  if (parameters != nullptr && extra != nullptr) return Result::kInvalidValue;
  if (parameters != nullptr) {
    if (!entry.parameters_known) return Result::kSuccess;  // their number is unknown
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      const Parameter& parameter = entry.parameters[i];
      if (parameters[i] == nullptr) return Result::kInvalidValue;
      if (uint64_t(parameter.offset) + parameter.size > kMaxParameterBytes) {
        return Result::kInvalidValue;
      }
      memcpy(buffer + parameter.offset, parameters[i], parameter.size);
    }
    *has_parameters = true;
    return Result::kSuccess;
  }
  const LaunchBuffer source = BufferOf(extra);
  if (!source.valid || source.size > kMaxParameterBytes) return Result::kInvalidValue;
  if (source.bytes == nullptr) {
    return entry.parameters.empty() ? Result::kSuccess : Result::kInvalidValue;
  }
  memcpy(buffer, source.bytes, source.size);
  const bool has_all = std::ranges::all_of(entry.parameters, [&](const Parameter& parameter) {
    return uint64_t(parameter.offset) + parameter.size <= source.size;
  });
  *has_parameters = has_all && entry.parameters_known;
  return Result::kSuccess;
}

// Counts a launch that computes nothing, for `simgpu unimplemented`.
void CountLaunch(Call& call, FunctionTag* function) {
  static std::atomic<uint64_t> uncounted;  // shared by kernels for which the state has no room
  if (function->launch_counter == nullptr) {
    function->launch_counter = call->state().KernelCounter(function->entry.name.c_str());
    if (function->launch_counter == nullptr) function->launch_counter = &uncounted;
  }
  function->launch_counter->fetch_add(1, std::memory_order_relaxed);
}

Result LaunchOn(Function handle, const LaunchShape& shape, Stream stream, void** parameters,
                void** extra) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* queue = call->FindStream(call.context(), stream);
  if (queue == nullptr) return Result::kInvalidHandle;
  Command command;
  const Result result =
      PlanLaunch(call, call.context(), handle, shape, parameters, extra, &command);
  if (result != Result::kSuccess) return result;
  return call.Push(queue, std::move(command), GraphNodeType::kKernel);
}

// Blocks that one multiprocessor runs at once.
uint64_t BlocksPerSm(const sim::GpuFacts& gpu, uint64_t block_size, size_t shared_bytes) {
  if (block_size > kMaxThreadsPerBlock) return 0;
  uint64_t most = gpu.max_threads_per_sm / block_size;
  most = std::min<uint64_t>(most, gpu.max_threads_per_sm >= 2048 ? 32 : 16);
  return shared_bytes != 0 ? std::min<uint64_t>(most, gpu.shared_per_sm / shared_bytes) : most;
}

Result MaxBlocksPerSm(int* blocks, Function handle, int block_size, size_t shared_bytes) {
  CUDA_ENTER(FunctionCall, call, handle);
  if (blocks == nullptr || block_size <= 0) return Result::kInvalidValue;
  const sim::GpuFacts& gpu = call->FactsOf(call.context()->device);
  *blocks = int(BlocksPerSm(gpu, unsigned(block_size), shared_bytes));
  return Result::kSuccess;
}

// Hopper and later run blocks as a cluster on neighboring multiprocessors.
bool HasClusters(ContextCall& call) { return CcOf(call->FactsOf(call.context()->device)) >= 90; }

int BlocksOfCluster(const LaunchConfig& config) {
  for (unsigned i = 0; i < config.attribute_count; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    if (attribute.id != kLaunchClusterDimension) continue;
    unsigned extents[3];
    memcpy(extents, attribute.value, sizeof(extents));
    return std::max(1, int(extents[0] * extents[1] * extents[2]));
  }
  return 1;
}

LaunchShape ShapeOf(const DeviceLaunch& launch) {
  return {{launch.grid_x, launch.grid_y, launch.grid_z},
          {launch.block_x, launch.block_y, launch.block_z},
          launch.shared_bytes};
}

// Creates the command of one of several launches. Each launch needs a stream of a different device,
// and the kernel and shape of `first`.
Result PlanDeviceLaunch(Call& call, const DeviceLaunch& first, const DeviceLaunch& launch,
                        std::set<Device>* devices, Command* command) {
  if (!call->IsStream(launch.stream)) return Result::kInvalidHandle;
  ContextTag* context = launch.stream->context;
  if (const Result health = call->HealthOf(context); health != Result::kSuccess) return health;
  if (!devices->insert(context->device).second) return Result::kInvalidValue;
  if (call->graphs().Invalidate(launch.stream)) return Result::kStreamCaptureUnsupported;
  const LaunchShape shape = ShapeOf(launch);
  if (shape != ShapeOf(first)) return Result::kInvalidValue;
  const Result result =
      PlanLaunch(call, context, launch.function, shape, launch.parameters, nullptr, command);
  if (result != Result::kSuccess) return result;
  const FunctionTag* function = call->FindFunction(launch.function, context);
  const FunctionTag* other = call->FindFunction(first.function, first.stream->context);
  if (function->module->context != context) return Result::kInvalidHandle;
  if (function->entry.name != other->entry.name) return Result::kInvalidValue;
  const sim::GpuFacts& gpu = call->FactsOf(context->device);
  const uint64_t most = BlocksPerSm(gpu, shape.threads_of_block(), shape.shared_bytes);
  return shape.blocks() > most * gpu.sm_count ? Result::kCooperativeLaunchTooLarge
                                              : Result::kSuccess;
}

// Makes each stream wait for the commands that the other streams have now.
Result WaitForEachOther(Call& call, const DeviceLaunch* launches, unsigned count) {
  std::vector<TicketRef> ends;
  for (unsigned i = 0; i < count; ++i) {
    if (!call->IsStream(launches[i].stream)) return Result::kInvalidHandle;  // destroyed meanwhile
    ends.push_back(call->engine().EndTicket(launches[i].stream));
  }
  for (unsigned i = 0; i < count * count; ++i) {
    StreamTag* stream = launches[i / count].stream;
    if (i / count == i % count) continue;
    if (!call->IsStream(stream)) return Result::kInvalidHandle;  // destroyed meanwhile
    const Result result =
        call.Push(stream, {.kind = Command::Kind::kWait, .ticket = ends[i % count]});
    if (result != Result::kSuccess) return result;
  }
  return Result::kSuccess;
}

}  // namespace

LaunchBuffer BufferOf(void* const* extra) {
  LaunchBuffer buffer;
  for (void* const* item = extra; item != nullptr && *item != kLaunchParamEnd; item += 2) {
    const auto kind = reinterpret_cast<uintptr_t>(*item);
    if (kind == kLaunchParamBuffer)
      buffer.bytes = item[1];
    else if (kind == kLaunchParamSize)
      buffer.size = *static_cast<size_t*>(item[1]);
    else
      return {.valid = false};
  }
  return buffer;
}

Result PlanLaunch(Call& call, ContextTag* context, Function handle, const LaunchShape& shape,
                  void** parameters, void** extra, Command* command) {
  FunctionTag* function = call->FindFunction(handle, context);
  if (function == nullptr) return Result::kInvalidHandle;
  if (const Result result = CheckShape(shape, *function); result != Result::kSuccess) return result;
  const sim::GpuFacts& gpu = call->FactsOf(context->device);
  LaunchEffect effect;
  if (function->known_kernel != nullptr) {
    unsigned char buffer[kMaxParameterBytes];
    bool has_parameters = false;
    const Result result =
        PackParameters(function->entry, parameters, extra, buffer, &has_parameters);
    if (result != Result::kSuccess) return result;
    const KernelLaunch launch{&function->entry, buffer, uint64_t(shape.grid[0]) * shape.block[0]};
    const RangeChecker check = [](void* driver, DevicePtr pointer, uint64_t length) {
      return static_cast<Driver*>(driver)->FindAllocation(pointer, length) != nullptr;
    };
    if (has_parameters) effect = EffectOf(*function->known_kernel, launch, check, &call.driver());
  } else if (parameters != nullptr && extra != nullptr) {
    return Result::kInvalidValue;
  }
  if (function->known_kernel == nullptr) CountLaunch(call, function);
  command->share = ShareOf(gpu, shape);
  command->remaining_ns = double(DurationOf(gpu, shape, function, effect.bytes));
  command->error = effect.result;
  command->effect = std::move(effect.compute);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned shared_bytes, Stream stream,
                                  void** parameters, void** extra) {
  return LaunchOn(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},
                  stream, parameters, extra);
}
CUDA_PER_THREAD(cuLaunchKernel_ptsz, cuLaunchKernel, 11)

CUDA_EXPORT Result cuLaunchKernelEx(const LaunchConfig* config, Function function,
                                    void** parameters, void** extra) {
  if (config == nullptr) return Result::kInvalidValue;
  return LaunchOn(function,
                  {{config->grid_x, config->grid_y, config->grid_z},
                   {config->block_x, config->block_y, config->block_z},
                   config->shared_bytes},
                  config->stream, parameters, extra);
}
CUDA_PER_THREAD(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 4)

CUDA_EXPORT Result cuLaunchCooperativeKernel(Function function, unsigned grid_x, unsigned grid_y,
                                             unsigned grid_z, unsigned block_x, unsigned block_y,
                                             unsigned block_z, unsigned shared_bytes, Stream stream,
                                             void** parameters) {
  int blocks = 0;
  const int size = int(block_x * block_y * block_z);
  const Result result = MaxBlocksPerSm(&blocks, function, size, shared_bytes);
  if (result != Result::kSuccess) return result;
  Device device = 0;
  int processors = 0;
  (void)cuCtxGetDevice(&device);
  (void)cuDeviceGetAttribute(&processors, 16, device);
  if (uint64_t(grid_x) * grid_y * grid_z > uint64_t(blocks) * uint64_t(processors)) {
    return Result::kCooperativeLaunchTooLarge;
  }
  return LaunchOn(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},
                  stream, parameters, nullptr);
}
CUDA_PER_THREAD(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 10)

CUDA_EXPORT Result cuLaunchCooperativeKernelMultiDevice(DeviceLaunch* launches, unsigned count,
                                                        unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (launches == nullptr || count == 0 || flags > (kNoSyncBefore | kNoSyncAfter)) {
    return Result::kInvalidValue;
  }
  std::set<Device> devices;
  std::vector<Command> commands;
  Result result = Result::kSuccess;
  for (unsigned i = 0; i < count; ++i) {
    result = PlanDeviceLaunch(call, launches[0], launches[i], &devices, &commands.emplace_back());
    if (result != Result::kSuccess) return result;
  }
  if ((flags & kNoSyncBefore) == 0) result = WaitForEachOther(call, launches, count);
  for (unsigned i = 0; i < count && result == Result::kSuccess; ++i) {
    if (!call->IsStream(launches[i].stream)) return Result::kInvalidHandle;
    result = call.Push(launches[i].stream, std::move(commands[i]));
  }
  if (result != Result::kSuccess || (flags & kNoSyncAfter) != 0) return result;
  return WaitForEachOther(call, launches, count);
}

CUDA_EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function function,
                                                               int block_size,
                                                               size_t shared_bytes) {
  return MaxBlocksPerSm(blocks, function, block_size, shared_bytes);
}
CUDA_EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, Function function, int block_size, size_t shared_bytes, unsigned) {
  return MaxBlocksPerSm(blocks, function, block_size, shared_bytes);
}

CUDA_EXPORT Result cuOccupancyMaxPotentialBlockSize(int* grid, int* block, Function function,
                                                    OccupancySize shared, size_t shared_bytes,
                                                    int limit) {
  if (grid == nullptr || block == nullptr) return Result::kInvalidValue;
  const int size = limit > 0 ? std::min(limit, int(kMaxThreadsPerBlock)) : int(kMaxThreadsPerBlock);
  int blocks = 0, processors = 0;
  Device device = 0;
  Result result =
      MaxBlocksPerSm(&blocks, function, size, shared != nullptr ? shared(size) : shared_bytes);
  if (result == Result::kSuccess) result = cuCtxGetDevice(&device);
  if (result == Result::kSuccess) result = cuDeviceGetAttribute(&processors, 16, device);
  if (result != Result::kSuccess) return result;
  *block = size;
  *grid = blocks * processors;
  return Result::kSuccess;
}
CUDA_EXPORT Result cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block,
                                                             Function function,
                                                             OccupancySize shared,
                                                             size_t shared_bytes, int limit,
                                                             unsigned) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared, shared_bytes, limit);
}

// The shared memory available to each of `blocks` blocks on one multiprocessor.
CUDA_EXPORT Result cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, Function function,
                                                           int blocks, int block_size) {
  CUDA_ENTER(FunctionCall, call, function);
  if (blocks <= 0 || block_size <= 0) return Result::kInvalidValue;
  const sim::GpuFacts& gpu = call->FactsOf(call.context()->device);
  return Put(bytes,
             std::min<size_t>(gpu.shared_per_block_optin, gpu.shared_per_sm / unsigned(blocks)));
}

CUDA_EXPORT Result cuOccupancyMaxPotentialClusterSize(int* size, Function function,
                                                      const LaunchConfig* config) {
  CUDA_ENTER(FunctionCall, call, function);
  if (config == nullptr) return Result::kInvalidValue;
  return Put(size, HasClusters(call) ? kMaxClusterBlocks : 1);
}

CUDA_EXPORT Result cuOccupancyMaxActiveClusters(int* clusters, Function function,
                                                const LaunchConfig* config) {
  if (clusters == nullptr || config == nullptr) return Result::kInvalidValue;
  int blocks = 0;
  const unsigned size = config->block_x * config->block_y * config->block_z;
  const Result result = MaxBlocksPerSm(&blocks, function, int(size), config->shared_bytes);
  if (result != Result::kSuccess) return result;
  CUDA_ENTER(ContextCall, call);
  const int in_cluster = BlocksOfCluster(*config);
  if (in_cluster > 1 && !HasClusters(call)) return Result::kNotSupported;
  const sim::GpuFacts& gpu = call->FactsOf(call.context()->device);
  return Put(clusters, blocks * int(gpu.sm_count) / in_cluster);
}

}  // namespace tessera::cuda
