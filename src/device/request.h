// SPDX-License-Identifier: Apache-2.0
// What a pod asks for, whatever dialect it was written in (src/device/dialects.h reads them). For
// whoever decides (placement, admission) and whoever gives (the agent). Says nothing of CPU and
// memory of the node, and nothing of which GPU it will be.
//
// Threads: values. Cost: allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/device/gpu.h"

namespace tessera::device {

// A part of one device. Compute 0 is no claim: it gets what others leave. Of a whole device compute
// is 1000 and memory 0, which stands for all of it: sizes differ from GPU to GPU.
struct Share {
  MilliGpu compute;
  Bytes memory;
  bool operator==(const Share&) const = default;
};

enum class Dialect : uint8_t {
  kNone,       // asks for no device
  kNvidiaGpu,  // nvidia.com/gpu: whole GPUs
  kNvidiaMig,  // nvidia.com/mig-<profile>: MIG slices
  kGpuMem,     // aliyun.com/gpu-mem: memory of one GPU that the whole pod shares
  kVcuda,      // tencent.com/vcuda-core and -memory: a share of one GPU, or whole GPUs
};
// "nvidia.com/gpu", "nvidia.com/mig-*", "aliyun.com/gpu-mem", "tencent.com/vcuda-core", "none".
std::string_view NameOf(Dialect dialect);
std::optional<Dialect> DialectFromName(std::string_view name);

// When a container runs beside the others.
enum class Phase : uint8_t {
  kInit,     // alone, but for the sidecars before it; done before the next one starts
  kSidecar,  // an init container with restartPolicy Always: from its turn to the end of the pod
  kMain,     // all of them together, after the last init container
};
// "init", "sidecar", "main".
std::string_view NameOf(Phase phase);
std::optional<Phase> PhaseFromName(std::string_view name);

// Which devices a pod may get. Empty lists allow every one.
struct Constraints {
  std::vector<std::string> models;          // any of them, as MatchesModel (model.h) reads it
  std::vector<std::string> uuids;           // only these
  std::vector<std::string> excluded_uuids;  // none of these

  // A slice is judged by the model of its GPU and by both UUIDs.
  bool Allow(const Gpu& gpu) const;
  bool Allow(const Gpu& gpu, const MigSlice& slice) const;
  bool operator==(const Constraints&) const = default;
};

// Bounds that keep every sum over a pod far below what 64 bits hold.
inline constexpr int kMaxDevicesPerContainer = 1024;
inline constexpr size_t kMaxContainers = 1024;
inline constexpr Bytes kMaxShareMemory = GiB(1 << 20);

struct ContainerRequest {
  std::string name;
  Phase phase = Phase::kMain;
  Dialect dialect = Dialect::kNone;
  int count = 0;           // devices, all different; 0 exactly where the dialect is kNone
  Share per_gpu;           // of each of them
  bool exclusive = false;  // nobody else may be on these GPUs. A MIG slice is not: its GPU has more
  std::string mig_profile;  // "1g.10gb" where the dialect is kNvidiaMig, else empty

  bool operator==(const ContainerRequest&) const = default;
};

// How the scheduler shall choose for this pod, where it shall not do as it is configured.
enum class Policy : uint8_t {
  kBinpack,  // fill nodes and GPUs that are in use
  kSpread,   // take those with the most left
};
std::string_view NameOf(Policy policy);
std::optional<Policy> PolicyFromName(std::string_view name);

struct Request {
  // All containers of the pod in the order of its spec, init containers first, also those that ask
  // for nothing: older annotations count all of spec.containers, which are those of phase kMain.
  std::vector<ContainerRequest> containers;
  // Containers of dialect kGpuMem get one and the same GPU, which holds their sum.
  bool one_gpu = false;
  // Of every container: no dialect can say it for one of them, since annotations are the pod's.
  Constraints constraints;
  // Shares may use idle compute up to this (tencent.com/vcuda-core-limit); their compute is then
  // what they have for sure. None: compute is the most that they get.
  std::optional<MilliGpu> elastic_limit;
  std::optional<Policy> policy;

  bool asks_for_devices() const;
  // Groups of containers, by position, that run at the same time, those without devices left out. A
  // pod fits where each group fits: Kubernetes counts max(each init container with the sidecars
  // before it, all sidecars and main containers). A sidecar keeps its devices from group to group,
  // and an init container's are free for the next group. The last group is that of the main phase.
  std::vector<std::vector<size_t>> Stages() const;
  // Containers that use the same GPUs, by position, those without devices left out. Containers that
  // run at the same time have groups of their own, except that those of one_gpu share one. An init
  // container joins the group of the main container that becomes the least larger by it, or has one
  // of its own where that is less. Placement gives each group its GPUs, and the node keeps to it.
  std::vector<std::vector<size_t>> Groups() const;
  // The most memory and compute that one_gpu's containers hold at the same time; 0 without any.
  Share OneGpuShare() const;

  bool operator==(const Request&) const = default;
};

}  // namespace tessera::device
