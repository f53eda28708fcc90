// SPDX-License-Identifier: Apache-2.0
// nvidia.com/gpu and nvidia.com/mig-<profile>, as in NVIDIA's device plugin.
#include "api/names.h"
#include "src/device/dialects/parser.h"
#include "src/device/mig_profile.h"

namespace tessera::device::dialects {
namespace {

Status ParseGpu(const Amounts& amounts, const DialectOptions&, ContainerRequest* request) {
  request->exclusive = true;
  return SetWholeDevices(names::kResourceGpu, amounts.begin()->second, request);
}

Status ParseMig(const Amounts& amounts, const DialectOptions&, ContainerRequest* request) {
  for (const auto& [resource, amount] : amounts) {
    if (amount == 0) continue;
    if (!request->mig_profile.empty()) {
      return Reject(request->name, resource,
                    "the container requests {}{} too: request one profile in each container",
                    names::kResourceMigPrefix, request->mig_profile);
    }
    request->mig_profile = resource.substr(names::kResourceMigPrefix.size());
    if (!IsMigProfile(request->mig_profile)) {
      return Reject(request->name, resource,
                    "\"{}\" is not a MIG profile: request one like {}1g.10gb", request->mig_profile,
                    names::kResourceMigPrefix);
    }
    RETURN_IF_ERROR(SetWholeDevices(resource, amount, request));
  }
  return Status::Ok();
}

}  // namespace

const DialectParser kNvidiaGpu = {
    Dialect::kNvidiaGpu,
    "request whole GPUs, or a part of one with tencent.com/vcuda-core or aliyun.com/gpu-mem",
    ParseGpu};
const DialectParser kNvidiaMig = {Dialect::kNvidiaMig, "request whole slices", ParseMig};

}  // namespace tessera::device::dialects
