// SPDX-License-Identifier: Apache-2.0
// Labels and annotations of driver upgrades: NVIDIA's, and those of Tessera's own beside them.
#pragma once

#include <string_view>

namespace tessera::driver {

// Of nodes, as NVIDIA's GPU operator has them.
inline constexpr std::string_view kLabelUpgradeState = "nvidia.com/gpu-driver-upgrade-state";
inline constexpr std::string_view kLabelUpgradeSkip = "nvidia.com/gpu-driver-upgrade.skip";
inline constexpr std::string_view kAnnotationUpgradeRequested =
    "nvidia.com/gpu-driver-upgrade-requested";
// A driver pod waits while its node has this annotation.
inline constexpr std::string_view kAnnotationSafeLoad =
    "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load";
// "true": the node was cordoned before its upgrade began.
inline constexpr std::string_view kAnnotationInitiallyUnschedulable =
    "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable";
// Unix seconds.
inline constexpr std::string_view kAnnotationWaitStart =
    "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time";
inline constexpr std::string_view kAnnotationValidationStart =
    "nvidia.com/gpu-driver-upgrade-validation-start-time";
// Of pods.
inline constexpr std::string_view kLabelDrainSkip = "nvidia.com/gpu-driver-upgrade-drain.skip";

// Of nodes, Tessera's own.
inline constexpr std::string_view kAnnotationSince =
    "tessera.dev/driver-upgrade-since";  // when the state began, Unix seconds
inline constexpr std::string_view kAnnotationCordoned =
    "tessera.dev/driver-upgrade-cordoned";  // "true": the cordon is ours
inline constexpr std::string_view kAnnotationGoodRevision =
    "tessera.dev/driver-good-revision";  // the last driver that worked
inline constexpr std::string_view kAnnotationFailedRevision =
    "tessera.dev/driver-failed-revision";  // the last one that did not
// Keeps a node on a revision after a rollback: the DaemonSet of the pool leaves the node out, and
// that of the revision takes it.
inline constexpr std::string_view kLabelPinnedRevision = "tessera.dev/driver-revision";

}  // namespace tessera::driver
