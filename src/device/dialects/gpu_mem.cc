// SPDX-License-Identifier: Apache-2.0
// aliyun.com/gpu-mem, as in Alibaba's gpushare: memory of one GPU that all containers of the pod
// share, without a compute request.
#include "api/names.h"
#include "src/device/dialects/parser.h"

namespace tessera::device::dialects {
namespace {

Status Parse(const Amounts& amounts, const DialectOptions& options, ContainerRequest* request) {
  const Bytes unit = SizeOf(options.gpu_mem_unit);
  ASSIGN_OR_RETURN(request->per_gpu.memory, ShareMemory(request->name, names::kResourceGpuMem,
                                                        amounts.begin()->second, unit));
  request->count = 1;
  return Status::Ok();
}

}  // namespace

const DialectParser kGpuMem = {
    Dialect::kGpuMem, "request whole units, GiB or MiB as the cluster is configured", Parse};

}  // namespace tessera::device::dialects
