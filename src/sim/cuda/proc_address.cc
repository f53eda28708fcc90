// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: from a base name, a CUDA version and the stream mode to a symbol.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "src/sim/cuda/driver.h"

namespace tessera::cuda {

// Declared without their parameters: only the address is wanted.
#define CUDA_OTHER(name) extern "C" Result name();
#include "src/sim/cuda/others.inc"
#undef CUDA_OTHER
#define CUDA_SECOND(name) extern "C" char alias_##name __asm__(#name);
#include "src/sim/cuda/aliases.inc"
#undef CUDA_SECOND

namespace {

constexpr uint64_t kLegacyStream = 1, kPerThreadStream = 2;
enum Status { kFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };

struct Symbol {
  std::string_view name;
  void* address;
};

// Sorted once, at the first question.
const auto& Symbols() {
  static const auto symbols = [] {
    std::array all = {
#define CUDA_FUNCTION(name, parameters) Symbol{#name, reinterpret_cast<void*>(&name)},
#include "api/cuda_functions.inc"
#undef CUDA_FUNCTION
#define CUDA_SECOND(name) Symbol{#name, &alias_##name},
#include "src/sim/cuda/aliases.inc"
#undef CUDA_SECOND
#define CUDA_OTHER(name) Symbol{#name, reinterpret_cast<void*>(&name)},
#include "src/sim/cuda/others.inc"
#undef CUDA_OTHER
    };
    std::sort(all.begin(), all.end(),
              [](const Symbol& a, const Symbol& b) { return a.name < b.name; });
    return all;
  }();
  return symbols;
}

const Symbol* Find(std::string_view name) {
  const auto& symbols = Symbols();
  const auto found = std::lower_bound(
      symbols.begin(), symbols.end(), name,
      [](const Symbol& symbol, std::string_view wanted) { return symbol.name < wanted; });
  return found != symbols.end() && found->name == name ? &*found : nullptr;
}

struct Since {
  std::string_view prefix;  // of the symbol without stream suffix; the longest one wins
  int version;
};

// With which CUDA a symbol came. A "_v2" that is not here came with 3.2; all else is older than any
// version that is asked for.
constexpr Since kSince[] = {
    {"cuCtxDestroy_v2", 4000}, {"cuCtxPopCurrent_v2", 4000}, {"cuCtxPushCurrent_v2", 4000},
    {"cuStreamDestroy_v2", 4000}, {"cuEventDestroy_v2", 4000}, {"cuLaunchKernel", 4000},
    {"cuCtxSetCurrent", 4000}, {"cuCtxGetCurrent", 4000}, {"cuMemcpyPeer", 4000},
    {"cuMemHostRegister", 4000}, {"cuMemHostRegister_v2", 6050}, {"cuDeviceGetPCIBusId", 4010},
    {"cuIpc", 4010}, {"cuIpcOpenMemHandle_v2", 11000}, {"cuTexRefSetAddress2D_v3", 4010},
    {"cuMipmapped", 5000}, {"cuTexObject", 5000}, {"cuSurfObject", 5000}, {"cuLink", 5050},
    {"cuLinkCreate_v2", 6050}, {"cuLinkAddData_v2", 6050}, {"cuLinkAddFile_v2", 6050},
    {"cuMemAllocManaged", 6000}, {"cuGetError", 6000}, {"cuDevicePrimaryCtx", 7000},
    {"cuDevicePrimaryCtxRelease_v2", 11000}, {"cuDevicePrimaryCtxReset_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags_v2", 11000}, {"cuGraphicsResourceSetMapFlags_v2", 6050},
    {"cuPointerGetAttributes", 7000}, {"cuDeviceGetP2PAttribute", 8000}, {"cuMemPrefetchAsync", 8000},
    {"cuMemPrefetchAsync_v2", 12020}, {"cuMemAdvise", 8000}, {"cuMemAdvise_v2", 12020},
    {"cuStreamWaitValue", 8000}, {"cuStreamWriteValue", 8000}, {"cuStreamBatchMemOp", 8000},
    {"cuStreamWaitValue32_v2", 11070}, {"cuStreamWaitValue64_v2", 11070},
    {"cuStreamWriteValue32_v2", 11070}, {"cuStreamWriteValue64_v2", 11070},
    {"cuStreamBatchMemOp_v2", 11070}, {"cuLaunchCooperativeKernel", 9000},
    {"cuDeviceGetUuid", 9020}, {"cuDeviceGetUuid_v2", 11040}, {"cuStreamGetCtx", 9020},
    {"cuStreamGetCtx_v2", 12050}, {"cuGraph", 10000}, {"cuGraphics", 3000},
    {"cuGraphInstantiate_v2", 11000}, {"cuGraphInstantiateWith", 11040},
    {"cuGraphAddKernelNode_v2", 12000}, {"cuGraphKernelNodeGetParams_v2", 12000},
    {"cuGraphKernelNodeSetParams_v2", 12000}, {"cuGraphExecKernelNodeSetParams_v2", 12000},
    {"cuGraphExecUpdate_v2", 12000}, {"cuGraphAddNode", 12020}, {"cuLaunchHostFunc", 10000},
    {"cuStreamBeginCapture", 10000}, {"cuStreamBeginCapture_v2", 10010},
    {"cuStreamGetCaptureInfo", 10010}, {"cuStreamGetCaptureInfo_v2", 11030},
    {"cuStreamGetCaptureInfo_v3", 12030}, {"cuMemAddress", 10020}, {"cuMemCreate", 10020},
    {"cuMemMap", 10020}, {"cuMemAllocAsync", 11020}, {"cuMemAllocFromPoolAsync", 11020},
    {"cuMemFreeAsync", 11020}, {"cuMemPool", 11020}, {"cuGetProcAddress", 11030},
    {"cuGetProcAddress_v2", 12000}, {"cuEventRecordWithFlags", 11010}, {"cuFuncGetModule", 11000},
    {"cuFuncGetName", 12030}, {"cuFuncLoad", 12040}, {"cuFuncIsLoaded", 12040},
    {"cuCtxCreate_v3", 11040}, {"cuCtxCreate_v4", 12050}, {"cuCtxGetDevice_v2", 13000},
    {"cuCtxSynchronize_v2", 13000}, {"cuEventElapsedTime_v2", 12080}, {"cuLaunchKernelEx", 11060},
    {"cuModuleGetLoadingMode", 11070}, {"cuLibrary", 12000}, {"cuKernel", 12000},
    {"cuMulticast", 12010}, {"cuGreenCtx", 12040}, {"cuCheckpoint", 12080}, {"cuLogs", 12090},
    {"cuTensorMap", 12000}, {"cuCoredump", 12010}, {"cuCtxGetId", 12000}, {"cuStreamGetId", 12000},
    {"cuStreamGetDevice", 12080}, {"cuMemcpyBatchAsync", 12080}, {"cuMemcpy3DBatchAsync", 12080},
};

int SinceOf(std::string_view symbol) {
  const Since* best = nullptr;
  const bool versioned = symbol.size() > 3 && symbol[symbol.size() - 3] == '_' &&
                         symbol[symbol.size() - 2] == 'v';
  for (const Since& since : kSince) {
    if (!symbol.starts_with(since.prefix)) continue;
    // A family's entry does not speak for a later version of one of its members.
    if (best == nullptr || since.prefix.size() > best->prefix.size()) best = &since;
  }
  if (best != nullptr) return best->version;
  return versioned ? 3020 : 2000;
}

bool HasSuffix(std::string_view name) {
  if (name.ends_with("_ptsz") || name.ends_with("_ptds")) return true;
  return name.size() > 3 && name[name.size() - 3] == '_' && name[name.size() - 2] == 'v';
}

const Symbol* Choose(std::string_view name, int version, uint64_t flags, Status* status) {
  *status = kSymbolNotFound;
  if (name.empty() || HasSuffix(name)) return nullptr;
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    std::string symbol = std::string(name) + suffix;
    const Symbol* found = Find(symbol);
    if (found == nullptr) continue;
    if (SinceOf(symbol) > version) {
      *status = kVersionNotSufficient;
      continue;
    }
    *status = kFound;
    if ((flags & kPerThreadStream) == 0) return found;
    const Symbol* per_thread = Find(symbol + "_ptsz");
    if (per_thread == nullptr) per_thread = Find(symbol + "_ptds");
    return per_thread != nullptr ? per_thread : found;
  }
  return nullptr;
}

}  // namespace

CUDA_EXPORT Result cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                       uint64_t flags, int* status) {
  if (symbol == nullptr || function == nullptr) return Result::kInvalidValue;
  if ((flags & ~(kLegacyStream | kPerThreadStream)) != 0) return Result::kInvalidValue;
  *function = nullptr;
  int newest = 0;
  if (cuDriverGetVersion(&newest) == Result::kSuccess && version > newest) {
    return Result::kInvalidValue;
  }
  Status answer;
  const Symbol* found = Choose(symbol, version, flags, &answer);
  PutIf(status, int(answer));
  if (found != nullptr) *function = found->address;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGetProcAddress(const char* symbol, void** function, int version,
                                    uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // namespace tessera::cuda
