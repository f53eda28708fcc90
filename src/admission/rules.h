// SPDX-License-Identifier: Apache-2.0
// Says of a pod that somebody creates whether its request for GPUs can be meant, and changes what
// must not stay in it. docs/admission.md has the rules.
//
//   Mutate    takes away annotations that say what a pod was given: at creation it was given
//   nothing,
//             so they are forged, or copied from another pod. Names a RuntimeClass, if told to.
//   Validate  refuses what breaks a rule of its dialect; warns of what has no effect or can never
//             be placed.
//
// Mutate changes nothing a second time. Who may write those annotations later is not for here: a
// ValidatingAdmissionPolicy says it, which holds while the scheduler is away. Nor is a quota that
// is used up: that passes, and such pods wait.
//
// Threads: one. Ownership: `capacity` is asked at each call and may give null, where nothing is
// known of the cluster; then nothing is said of it.
#pragma once

#include <functional>
#include <string>

#include "src/admission/capacity.h"
#include "src/admission/review.h"
#include "src/device/dialects.h"

namespace tessera::admission {

struct AdmissionOptions {
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;
  // For pods that ask for GPUs and name none. Empty: they are left as they are, which is right
  // where tessera-runtime is the engine's default.
  std::string runtime_class;
};

// Of what people write for us into annotations, together. 300 UUIDs are 12 KiB.
inline constexpr size_t kMaxAskBytes = 16 << 10;

class AdmissionRules {
 public:
  using Capacity = std::function<const ClusterCapacity*()>;
  AdmissionRules(AdmissionOptions options, Capacity capacity);

  // Requests for anything but a pod pass, with a warning: the webhook's configuration is wrong.
  AdmissionAnswer Mutate(const AdmissionRequest& request) const;
  AdmissionAnswer Validate(const AdmissionRequest& request) const;

 private:
  AdmissionAnswer ValidatePod(const AdmissionRequest& request) const;

  const AdmissionOptions options_;
  const Capacity capacity_;
};

}  // namespace tessera::admission
