// SPDX-License-Identifier: Apache-2.0
// tencent.com/vcuda-core and tencent.com/vcuda-memory, as in TKEStack's gpu-manager.
#include "api/names.h"
#include "src/device/dialects/parser.h"

namespace tessera::device {
namespace dialects {
namespace {

constexpr int64_t kCoresPerGpu = kWholeGpu.count() / kVcudaCore.count();

int64_t AmountOf(const Amounts& amounts, std::string_view resource) {
  const auto amount = amounts.find(resource);
  return amount == amounts.end() ? 0 : amount->second;
}

Status ParseShare(int64_t core, int64_t memory, ContainerRequest* request) {
  if (memory == 0) {
    return Reject(request->name, names::kResourceVcudaMemory,
                  "is missing or 0 beside {}: {}: request 1 or more blocks of 256 MiB",
                  names::kResourceVcudaCore, core);
  }
  ASSIGN_OR_RETURN(request->per_gpu.memory, ShareMemory(request->name, names::kResourceVcudaMemory,
                                                        memory, kVcudaMemoryBlock));
  request->per_gpu.compute = kVcudaCore * core;
  request->count = 1;
  return Status::Ok();
}

Status ParseVcuda(const Amounts& amounts, const DialectOptions&, ContainerRequest* request) {
  const int64_t core = AmountOf(amounts, names::kResourceVcudaCore);
  const int64_t memory = AmountOf(amounts, names::kResourceVcudaMemory);
  if (core == 0) {
    return Reject(request->name, names::kResourceVcudaCore,
                  "is missing or 0 beside {}: {}: request 1 to 99, or a multiple of 100",
                  names::kResourceVcudaMemory, memory);
  }
  if (core < kCoresPerGpu) return ParseShare(core, memory, request);
  // Whole GPUs come with all their memory, so a memory request beside them is ignored.
  request->exclusive = true;
  RETURN_IF_ERROR(SetWholeDevices(names::kResourceVcudaCore, core / kCoresPerGpu, request));
  const int64_t below = core - core % kCoresPerGpu;
  if (core == below) return Status::Ok();
  return Reject(request->name, names::kResourceVcudaCore,
                "{} is neither 1 to 99 nor a multiple of 100: request {} or {}", core, below,
                below + kCoresPerGpu);
}

}  // namespace

const DialectParser kVcuda = {Dialect::kVcuda, "request whole units", ParseVcuda};

}  // namespace dialects

}  // namespace tessera::device
