// SPDX-License-Identifier: Apache-2.0
// Validates and mutates the GPU request of a new pod. docs/reference/admission.md has the rules.
//
//   Mutate    removes annotations that assign GPUs: no GPUs are assigned to a new pod, so the
//             annotations are forged, or copied from another pod. Sets a RuntimeClass, if
//             configured.
//   Validate  rejects a request that breaks a rule of its dialect; warns of annotations without
//             effect and of pods that can never be placed.
//
// A dialect is one family of resource names, such as nvidia.com/* or aliyun.com/gpu-mem, with the
// rules of its amounts (device/dialects.h).
//
// Mutate is idempotent. A ValidatingAdmissionPolicy restricts later writes of the annotations that
// assign GPUs, also while the scheduler is down. An exhausted quota does not reject a pod: the pod
// waits.
//
// Threads: one. Validate calls `get_capacity` for each valid request. If it returns null, the
// cluster is unknown, and Validate gives no warnings about the cluster.
#pragma once

#include <functional>
#include <string>

#include "src/admission/capacity.h"
#include "src/admission/review.h"
#include "src/device/dialects.h"

namespace tessera::admission {

struct AdmissionOptions {
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;
  // For pods that request GPUs and name no RuntimeClass. Empty: the pods are not changed, which is
  // correct if tessera-runtime is the engine's default.
  std::string runtime_class;
};

// The largest total size of the annotations that constrain a request. 300 UUIDs are 12 KiB.
inline constexpr size_t kMaxConstraintBytes = 16 << 10;

class AdmissionRules {
 public:
  using GetCapacity = std::function<const ClusterCapacity*()>;
  AdmissionRules(AdmissionOptions options, GetCapacity get_capacity);

  // Requests for other objects than pods are allowed, with a warning that the webhook is
  // misconfigured.
  AdmissionAnswer Mutate(const AdmissionRequest& request) const;
  AdmissionAnswer Validate(const AdmissionRequest& request) const;

 private:
  AdmissionAnswer ValidatePod(const AdmissionRequest& request) const;

  const AdmissionOptions options_;
  const GetCapacity get_capacity_;
};

}  // namespace tessera::admission
