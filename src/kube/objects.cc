// SPDX-License-Identifier: Apache-2.0
#include "src/kube/objects.h"

#include <algorithm>
#include <limits>

#include "src/kube/object_decoders.h"

namespace tessera::kube {

PodPhase PodPhaseOf(std::string_view text) {
  if (text == "Pending") return PodPhase::kPending;
  if (text == "Running") return PodPhase::kRunning;
  if (text == "Succeeded") return PodPhase::kSucceeded;
  if (text == "Failed") return PodPhase::kFailed;
  return PodPhase::kUnknown;
}

void AddToSummary(const ContainerRunState& container, PodRunSummary* summary) {
  // Bounded, because a kubelet may report any number, and an overflow is undefined.
  constexpr int64_t kMaxRestarts = std::numeric_limits<int32_t>::max();
  const int64_t restarts = std::clamp<int64_t>(container.restarts, 0, kMaxRestarts);
  summary->restarts =
      static_cast<int32_t>(std::min(kMaxRestarts, int64_t{summary->restarts} + restarts));
  if (!summary->reason.empty()) return;
  // A container that starts normally waits for these reasons, too.
  const bool is_starting =
      container.waiting == "ContainerCreating" || container.waiting == "PodInitializing";
  if (!container.waiting.empty() && !is_starting) summary->reason = container.waiting;
  if (container.exit_code != 0) {
    summary->reason =
        fmt::format("{} (exit code {})", container.ended.empty() ? "Error" : container.ended,
                    container.exit_code);
  }
}

uint64_t FailedAttemptHash(std::string_view reason, std::string_view message) {
  // kube-scheduler's reasons of a failed attempt (PodReasonUnschedulable and
  // PodReasonSchedulerError in k8s.io/api/core/v1). The reason SchedulingGated does not count,
  // because kube-scheduler does not try to place a gated pod.
  if (reason != "Unschedulable" && reason != "SchedulerError") return 0;
  const std::hash<std::string_view> hash;
  return (hash(reason) * 31 + hash(message)) | 1;
}

Status DecodeMeta(const RawObject& raw, ObjectMeta* out) {
  static constexpr auto kNothing = [](std::string_view) { return false; };
  const KeptFields kept{.label = kNothing, .annotation = kNothing};
  return raw.json() != nullptr ? FromJson(*raw.json(), kept, out)
                               : FromProtobuf(raw.message(), kept, out);
}

template <typename T>
requires requires { T::kType; }
Status DecodeObject(const RawObject& raw, const KeptFields& kept, T* out) {
  const Status status = raw.json() != nullptr ? FromJson(*raw.json(), kept, out)
                                              : FromProtobuf(raw.message(), kept, out);
  if (status.ok()) return status;
  return status.Annotate(fmt::format("{} {}{}{}", T::kType.plural, out->meta.ns,
                                     out->meta.ns.empty() ? "" : "/", out->meta.name));
}

template Status DecodeObject(const RawObject&, const KeptFields&, PodObject*);
template Status DecodeObject(const RawObject&, const KeptFields&, NodeObject*);
template Status DecodeObject(const RawObject&, const KeptFields&, ConfigMapObject*);
template Status DecodeObject(const RawObject&, const KeptFields&, LeaseObject*);
template Status DecodeObject(const RawObject&, const KeptFields&, PodDisruptionBudgetObject*);

}  // namespace tessera::kube
