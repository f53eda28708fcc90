// SPDX-License-Identifier: Apache-2.0
// The one table of all names that are visible outside of the programs: resources, labels,
// annotations, environment variables, sockets and files. No other file in the tree spells them.
#pragma once

#include <string_view>

namespace tessera::names {

// Extended resources.
inline constexpr std::string_view kResourceGpu = "nvidia.com/gpu";
inline constexpr std::string_view kResourceMigPrefix = "nvidia.com/mig-";  // + profile: 1g.10gb
inline constexpr std::string_view kResourceGpuMem = "aliyun.com/gpu-mem";
inline constexpr std::string_view kResourceGpuCount = "aliyun.com/gpu-count";  // on nodes
inline constexpr std::string_view kResourceVcudaCore = "tencent.com/vcuda-core";
inline constexpr std::string_view kResourceVcudaMemory = "tencent.com/vcuda-memory";

// Node labels, as GPU feature discovery and the GPU operator write them.
inline constexpr std::string_view kLabelGpuPresent = "nvidia.com/gpu.present";
inline constexpr std::string_view kLabelGpuCount = "nvidia.com/gpu.count";
inline constexpr std::string_view kLabelGpuProduct = "nvidia.com/gpu.product";
inline constexpr std::string_view kLabelGpuMemory = "nvidia.com/gpu.memory";  // MiB

// Node label of gpushare: "true" turns off the enforcement of limits.
inline constexpr std::string_view kLabelCgpuDisableIsolation = "cgpu.disable.isolation";

// Tessera's annotations.
inline constexpr std::string_view kAnnotationPrefix = "tessera.dev/";
inline constexpr std::string_view kAnnotationDevices = "tessera.dev/devices";        // on Nodes
inline constexpr std::string_view kAnnotationAssignment = "tessera.dev/assignment";  // on Pods
inline constexpr std::string_view kAnnotationAllocated =
    "tessera.dev/allocated";  // on containers, by Allocate with --binding=allocate

// Annotations that users put on pods for the scheduler: lists such as a,b, and a policy.
inline constexpr std::string_view kAnnotationGpuModels = "tessera.dev/gpu-models";  // allowed
inline constexpr std::string_view kAnnotationGpuUuids = "tessera.dev/gpu-uuids";    // allowed
inline constexpr std::string_view kAnnotationGpuUuidsExcluded =
    "tessera.dev/gpu-uuids-excluded";                                        // forbidden
inline constexpr std::string_view kAnnotationPolicy = "tessera.dev/policy";  // binpack or spread

// Annotations that users put on pods for the agent: limits of device memory, and of GPU time in
// hundredths, for each container on each of its GPUs. They only lower the grant. Format: 8Gi, or
// main=8Gi, or GPU-f1e2…=4Gi, or a list of these.
inline constexpr std::string_view kAnnotationMemoryLimit = "tessera.dev/memory-limit";
inline constexpr std::string_view kAnnotationComputeLimit = "tessera.dev/compute-limit";

// An annotation for the agent, with its possible values. Users put it on pods with a share of a
// GPU. While a pod of class high works on a GPU, pods of class low on this GPU wait and get
// less than their share.
inline constexpr std::string_view kAnnotationComputeClass = "tessera.dev/compute-class";
inline constexpr std::string_view kComputeClassHigh = "high";
inline constexpr std::string_view kComputeClassNormal = "normal";  // as without the annotation
inline constexpr std::string_view kComputeClassLow = "low";

// Pod annotations of Alibaba's gpushare.
inline constexpr std::string_view kAnnotationGpuMemPrefix = "ALIYUN_COM_GPU_MEM_";
inline constexpr std::string_view kAnnotationGpuMemIndex = "ALIYUN_COM_GPU_MEM_IDX";
inline constexpr std::string_view kAnnotationGpuMemPod = "ALIYUN_COM_GPU_MEM_POD";
inline constexpr std::string_view kAnnotationGpuMemDev = "ALIYUN_COM_GPU_MEM_DEV";
inline constexpr std::string_view kAnnotationGpuMemAssigned = "ALIYUN_COM_GPU_MEM_ASSIGNED";
inline constexpr std::string_view kAnnotationGpuMemAssumeTime = "ALIYUN_COM_GPU_MEM_ASSUME_TIME";
inline constexpr std::string_view kAnnotationGpushareAllocation =
    "scheduler.framework.gpushare.allocation";  // Tessera only reads it

// Pod annotations and node labels of TKEStack's gpu-manager and its scheduler extender.
inline constexpr std::string_view kAnnotationPredicatePrefix = "tencent.com/predicate-";
inline constexpr std::string_view kAnnotationPredicateTime = "tencent.com/predicate-time";
inline constexpr std::string_view kAnnotationPredicateNode = "tencent.com/predicate-node";
inline constexpr std::string_view kAnnotationPredicateGpuIndexPrefix =
    "tencent.com/predicate-gpu-idx-";  // + position of a container
inline constexpr std::string_view kAnnotationGpuAssigned = "tencent.com/gpu-assigned";
inline constexpr std::string_view kAnnotationVcudaCoreLimit = "tencent.com/vcuda-core-limit";
inline constexpr std::string_view kLabelLegacyGpuModel = "gaia.tencent.com/gpu-model";
inline constexpr std::string_view kLabelLegacyGpuPool = "gaia.tencent.com/gpu-pool";

// Node labels of NVIDIA's GPU operator that select the nodes on which its components run.
inline constexpr std::string_view kLabelDeployPrefix =
    "nvidia.com/gpu.deploy.";  // + component; value true, false or paused-…
inline constexpr std::string_view kLabelDeployOperands =
    "nvidia.com/gpu.deploy.operands";  // "false": no component runs on the node

// Driver upgrades, with the names that NVIDIA's GPU operator uses: the state of a node, and
// requests of users and programs.
inline constexpr std::string_view kLabelUpgradeState = "nvidia.com/gpu-driver-upgrade-state";
inline constexpr std::string_view kLabelUpgradeSkip =
    "nvidia.com/gpu-driver-upgrade.skip";  // "true": the node is never upgraded
inline constexpr std::string_view kAnnotationUpgradeRequested =
    "nvidia.com/gpu-driver-upgrade-requested";  // upgrade this node now, or retry
inline constexpr std::string_view kAnnotationSafeLoad =
    "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load";  // set: the driver pod waits
inline constexpr std::string_view kAnnotationInitiallyUnschedulable =
    "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable";  // set: cordoned before
inline constexpr std::string_view kAnnotationWaitStart =
    "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time";  // Unix seconds
inline constexpr std::string_view kAnnotationValidationStart =
    "nvidia.com/gpu-driver-upgrade-validation-start-time";  // Unix seconds
inline constexpr std::string_view kLabelDrainSkip =
    "nvidia.com/gpu-driver-upgrade-drain.skip";  // on Pods; "true": not drained

// Driver upgrades: Tessera's own annotations and labels of nodes.
inline constexpr std::string_view kAnnotationUpgradeSince =
    "tessera.dev/driver-upgrade-since";  // when the state began, Unix seconds
inline constexpr std::string_view kAnnotationUpgradeCordoned =
    "tessera.dev/driver-upgrade-cordoned";  // "true": Tessera cordoned the node
inline constexpr std::string_view kAnnotationUpgradeUnhealthyBefore =
    "tessera.dev/driver-upgrade-unhealthy-before";  // "true": a GPU was already unhealthy
inline constexpr std::string_view kAnnotationDriverGood =
    "tessera.dev/driver-good-revision";  // the last driver that worked
inline constexpr std::string_view kAnnotationDriverFailed =
    "tessera.dev/driver-failed-revision";  // the last driver that did not work
inline constexpr std::string_view kAnnotationUpgradeProblem =
    "tessera.dev/driver-upgrade-problem";  // why that driver did not work, for users
inline constexpr std::string_view kLabelDriverRevision =
    "tessera.dev/driver-revision";  // of a driver pod; on Nodes: set by a rollback
inline constexpr std::string_view kLabelDriverPool =
    "tessera.dev/driver-pool";  // nodes with the same driver image
inline constexpr std::string_view kLabelAgentPool =
    "tessera.dev/pool";  // of DaemonSets and pods of agents: the name of their pool

// Node condition: True while every GPU of the node can be used; else its reason names the problem.
inline constexpr std::string_view kConditionGpuReady = "GPUReady";

// Reasons of the condition and of the Events on the Node.
inline constexpr std::string_view kReasonGpusHealthy = "GPUsHealthy";        // condition
inline constexpr std::string_view kReasonGpuUnhealthy = "GPUUnhealthy";      // both
inline constexpr std::string_view kReasonGpuHealthy = "GPUHealthy";          // Event: healthy again
inline constexpr std::string_view kReasonDriverNotReady = "DriverNotReady";  // both
inline constexpr std::string_view kReasonDriverReady = "DriverReady";        // Event: works again
inline constexpr std::string_view kReasonGpuNote = "GPUNote";                // Event: a hint
inline constexpr std::string_view kReasonNoGpu = "NoGPU";  // both: a driver, but no GPU
inline constexpr std::string_view kReasonDriverIncomplete =
    "DriverIncomplete";  // condition: parts of the driver are missing
inline constexpr std::string_view kReasonDriverConflict =
    "DriverConflict";  // condition: the host and a driver container both have a driver
inline constexpr std::string_view kReasonSmokeTestFailed =
    "SmokeTestFailed";  // condition: the test pod with a GPU did not start
inline constexpr std::string_view kReasonRuntimeNotConfigured =
    "RuntimeNotConfigured";  // both: containers would start without their GPUs
inline constexpr std::string_view kReasonRuntimeConfigured =
    "RuntimeConfigured";  // Event: the engine starts containers through tessera-runtime again

// Keys of taints of nodes that join without usable GPUs; the agent removes these taints. If the key
// has a prefix of cluster-autoscaler, which GKE and AKS use too, cluster-autoscaler treats the node
// as still starting.
inline constexpr std::string_view kTaintNotReady = "tessera.dev/not-ready";
inline constexpr std::string_view kTaintNotReadyAutoscaler =
    "startup-taint.cluster-autoscaler.kubernetes.io/tessera-not-ready";
inline constexpr std::string_view kTaintNotReadyOldAutoscaler =
    "ignore-taint.cluster-autoscaler.kubernetes.io/tessera-not-ready";  // before Kubernetes 1.29

// Reasons of Events on Pods.
inline constexpr std::string_view kReasonQuotaExceeded = "GPUQuotaExceeded";
inline constexpr std::string_view kReasonGpuOverassigned = "GPUOverassigned";
inline constexpr std::string_view kReasonCudaOutOfMemory =
    "CUDAOutOfMemory";  // the limiter refused an allocation of device memory
inline constexpr std::string_view kReasonLimitChanged = "GPULimitChanged";
inline constexpr std::string_view kReasonLimitRejected =
    "GPULimitRejected";  // annotation tessera.dev/memory-limit or compute-limit is not followed
inline constexpr std::string_view kReasonMemoryLimitBelowUse =
    "GPUMemoryLimitBelowUse";  // a container has more than its limit
inline constexpr std::string_view kReasonLimiterBypassed =
    "GPULimiterBypassed";  // a process of a limited container uses a GPU without the limiter
inline constexpr std::string_view kReasonXid = "GPUXid";  // a GPU of the pod reported an XID

// The namespace of Tessera's own pods, and the selector of the agents among them. `tessera top`
// reads the GPU usage of containers from this port and path of an agent.
inline constexpr std::string_view kSystemNamespace = "tessera-system";
inline constexpr std::string_view kAgentSelector = "app.kubernetes.io/name=tessera-agent";
inline constexpr std::string_view kAgentMetricsPort = "9400";  // a number, as pods/proxy requires
inline constexpr std::string_view kContainersPath = "/containers";

// The agent's name in logs of the API server, in Events, and as the manager of the fields that it
// writes.
inline constexpr std::string_view kAgent = "tessera-agent";

// The name of the scheduler's Lease, of its Service, and of the Service's EndpointSlice.
inline constexpr std::string_view kScheduler = "tessera-scheduler";

// Secrets for TLS on the extender's port. Only the replicas read the first Secret, which has the
// private keys of the CAs. The second Secret has the client certificate and the CA bundle for
// kube-scheduler.
inline constexpr std::string_view kAuthoritySecret = "tessera-scheduler-authority";
inline constexpr std::string_view kClientSecret = "tessera-scheduler-client";

// The name of four objects of the admission webhook: its Service, the Secret with its certificates,
// its ValidatingWebhookConfiguration and its MutatingWebhookConfiguration.
inline constexpr std::string_view kWebhook = "tessera-webhook";

// The operator, and its custom resource, of which one object exists.
inline constexpr std::string_view kOperator =
    "tessera-operator";  // the operator in its Lease, in Events and as field manager
inline constexpr std::string_view kGroup = "tessera.dev";  // API group
inline constexpr std::string_view kCustomResourceVersion = "v1alpha1";
inline constexpr std::string_view kCustomResourceApiVersion = "tessera.dev/v1alpha1";
inline constexpr std::string_view kCustomResourceKind = "Tessera";
inline constexpr std::string_view kCustomResourcePlural = "tesseras";
inline constexpr std::string_view kCustomResourceName = "tessera";  // name of the one object
inline constexpr std::string_view kOperatorFinalizer =
    "tessera.dev/operator";  // keeps the object until the installation is deleted

// Annotation of the custom resource: "true" also places agents on nodes that NVIDIA's operator
// manages.
inline constexpr std::string_view kAnnotationAdoptNvidiaNodes = "tessera.dev/adopt-nvidia-nodes";

// The label of all objects of an installation, and the node label by which NVIDIA's operator runs
// its device plugin on a node.
inline constexpr std::string_view kPartOfSelector = "app.kubernetes.io/part-of=tessera";
inline constexpr std::string_view kLabelDeployDevicePlugin = "nvidia.com/gpu.deploy.device-plugin";

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

// On the API server's copy of a static pod: the UID by which kubelet and engine know the pod.
inline constexpr std::string_view kAnnotationConfigMirror = "kubernetes.io/config.mirror";

// Environment of containers.
inline constexpr std::string_view kEnvGrantPrefix = "TESSERA_GRANT_";
inline constexpr std::string_view kEnvVisibleDevices = "NVIDIA_VISIBLE_DEVICES";
inline constexpr std::string_view kEnvGpuMemContainer =
    "ALIYUN_COM_GPU_MEM_CONTAINER";  // gpushare's other variables are named like its annotations
inline constexpr std::string_view kEnvGpuMemIndex = kAnnotationGpuMemIndex;
inline constexpr std::string_view kEnvGpuMemPod = kAnnotationGpuMemPod;
inline constexpr std::string_view kEnvGpuMemDev = kAnnotationGpuMemDev;
inline constexpr std::string_view kEnvCgpuDisable = "CGPU_DISABLE";
inline constexpr std::string_view kEnvDriverCapabilities = "NVIDIA_DRIVER_CAPABILITIES";
inline constexpr std::string_view kEnvRequirePrefix = "NVIDIA_REQUIRE_";
inline constexpr std::string_view kEnvDisableRequire = "NVIDIA_DISABLE_REQUIRE";

// The directory of driver files inside a container. /dev is a tmpfs that the engine creates for
// each container, so no driver file gets into a layer of the image.
inline constexpr std::string_view kContainerDriverDir = "/dev/tessera";

// Environment of tessera-runtime: a file to read instead of /etc/tessera/runtime.toml.
inline constexpr std::string_view kEnvRuntimeConfig = "TESSERA_RUNTIME_CONFIG";

// Files and sockets on a node.
inline constexpr std::string_view kRuntimeConfigFile = "/etc/tessera/runtime.toml";
inline constexpr std::string_view kRuntimeBinary = "/opt/tessera/bin/tessera-runtime";
inline constexpr std::string_view kGrantSocket = "/run/tessera/grant.sock";
inline constexpr std::string_view kLimitsDir =
    "/run/tessera/limits";  // a directory with the limits of each container with a share
inline constexpr std::string_view kDriverReleaseFile =
    "release-driver";  // beside grant.sock; while it exists, the agent does not open the driver
inline constexpr std::string_view kDriverTreeDir = "/run/tessera-runtime";
inline constexpr std::string_view kDriverContainerRoot = "/run/nvidia/driver";
inline constexpr std::string_view kStateDir = "/var/lib/tessera";
inline constexpr std::string_view kDevicePluginDir = "/var/lib/kubelet/device-plugins";
inline constexpr std::string_view kPodResourcesSocket =
    "/var/lib/kubelet/pod-resources/kubelet.sock";

// Checkpoints with the GPUs that other device plugins gave to containers before the agent was
// installed: the kubelet's, beside kubelet.sock, and gpu-manager's.
inline constexpr std::string_view kKubeletCheckpoint = "kubelet_internal_checkpoint";
inline constexpr std::string_view kGpuManagerCheckpoint =
    "/etc/gpu-manager/checkpoint/gpumanager_internal_checkpoint";

// RuntimeClass and engine handler.
inline constexpr std::string_view kRuntimeHandler = "nvidia";

}  // namespace tessera::names
