// SPDX-License-Identifier: Apache-2.0
// The one table of names that others can see: resources, labels, annotations, environment variables,
// sockets and files. Nothing else in the tree spells them.
#pragma once

#include <string_view>

namespace tessera::names {

// Extended resources.
inline constexpr std::string_view kResourceGpu = "nvidia.com/gpu";

// Node labels, as GPU feature discovery and the GPU operator write them.
inline constexpr std::string_view kLabelGpuPresent = "nvidia.com/gpu.present";
inline constexpr std::string_view kLabelGpuCount = "nvidia.com/gpu.count";
inline constexpr std::string_view kLabelGpuProduct = "nvidia.com/gpu.product";
inline constexpr std::string_view kLabelGpuMemory = "nvidia.com/gpu.memory";  // MiB

// Annotations of our own.
inline constexpr std::string_view kAnnotationDevices = "tessera.dev/devices";        // Node
inline constexpr std::string_view kAnnotationAssignment = "tessera.dev/assignment";  // Pod

// Annotations that container engines put into config.json.
inline constexpr std::string_view kCriContainerType = "io.kubernetes.cri.container-type";
inline constexpr std::string_view kCriSandboxUid = "io.kubernetes.cri.sandbox-uid";
inline constexpr std::string_view kCriSandboxName = "io.kubernetes.cri.sandbox-name";
inline constexpr std::string_view kCriSandboxNamespace = "io.kubernetes.cri.sandbox-namespace";
inline constexpr std::string_view kCriContainerName = "io.kubernetes.cri.container-name";
inline constexpr std::string_view kCrioContainerType = "io.kubernetes.cri-o.ContainerType";
inline constexpr std::string_view kCrioPodUid = "io.kubernetes.pod.uid";
inline constexpr std::string_view kCrioPodName = "io.kubernetes.pod.name";
inline constexpr std::string_view kCrioPodNamespace = "io.kubernetes.pod.namespace";
inline constexpr std::string_view kCrioContainerName = "io.kubernetes.container.name";

// Environment of containers.
inline constexpr std::string_view kEnvGrantPrefix = "TESSERA_GRANT_";
inline constexpr std::string_view kEnvGrantGpu = "TESSERA_GRANT_NVIDIA_COM_GPU";
inline constexpr std::string_view kEnvVisibleDevices = "NVIDIA_VISIBLE_DEVICES";
inline constexpr std::string_view kEnvDriverCapabilities = "NVIDIA_DRIVER_CAPABILITIES";
inline constexpr std::string_view kEnvRequirePrefix = "NVIDIA_REQUIRE_";
inline constexpr std::string_view kEnvDisableRequire = "NVIDIA_DISABLE_REQUIRE";

// Where driver files appear inside a container. /dev is a tmpfs that the engine makes for each
// container, so nothing of this lands in a layer of the image.
inline constexpr std::string_view kContainerDriverDir = "/dev/tessera";

// Files and sockets on a node.
inline constexpr std::string_view kRuntimeConfigFile = "/etc/tessera/runtime.toml";
inline constexpr std::string_view kRuntimeBinary = "/opt/tessera/bin/tessera-runtime";
inline constexpr std::string_view kGrantSocket = "/run/tessera/grant.sock";
inline constexpr std::string_view kStateDir = "/var/lib/tessera";
inline constexpr std::string_view kDevicePluginDir = "/var/lib/kubelet/device-plugins";
inline constexpr std::string_view kPodResourcesSocket =
    "/var/lib/kubelet/pod-resources/kubelet.sock";

// RuntimeClass and engine handler.
inline constexpr std::string_view kRuntimeHandler = "nvidia";

}  // namespace tessera::names
