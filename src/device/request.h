// SPDX-License-Identifier: Apache-2.0
// A pod's request for devices, independent of the dialect in which it was written
// (src/device/dialects.h parses them). Used by placement and admission, which decide, and by the
// agent, which grants. Contains neither host CPU and memory nor the GPUs that the pod will get.
//
// Threads: any number, on separate objects.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/device/gpu.h"

namespace tessera::device {

// A part of one device. Compute 0 reserves nothing: the container uses compute that other
// containers leave idle. A whole device has compute 1000 and memory 0, which stands for all its
// memory, because sizes differ between GPUs.
struct Share {
  MilliGpu compute;
  Bytes memory;
  auto operator<=>(const Share&) const = default;
};

enum class Dialect : uint8_t {
  kNone,       // requests no device
  kNvidiaGpu,  // nvidia.com/gpu: whole GPUs
  kNvidiaMig,  // nvidia.com/mig-<profile>: MIG slices
  kGpuMem,     // aliyun.com/gpu-mem: memory of one GPU that the whole pod shares
  kVcuda,      // tencent.com/vcuda-core and -memory: a share of one GPU, or whole GPUs
};
// All dialects that request devices.
inline constexpr std::array kDialects = {Dialect::kNvidiaGpu, Dialect::kNvidiaMig, Dialect::kGpuMem,
                                         Dialect::kVcuda};
// "nvidia.com/gpu", "nvidia.com/mig-*", "aliyun.com/gpu-mem", "tencent.com/vcuda-core", "none".
std::string_view NameOf(Dialect dialect);
std::optional<Dialect> DialectFromName(std::string_view name);
// The dialect of a resource, such as "nvidia.com/mig-1g.10gb"; nullopt: it is no GPU resource.
std::optional<Dialect> DialectOfResource(std::string_view resource);
// Whether a resource is a whole GPU or a part of a GPU, in any dialect of Tessera.
inline bool IsGpuResource(std::string_view resource) {
  return DialectOfResource(resource).has_value();
}

// When a container runs relative to the others.
enum class Phase : uint8_t {
  kInit,     // alone or beside earlier sidecars; ends before the next container starts
  kSidecar,  // an init container with restartPolicy Always: from its turn to the end of the pod
  kMain,     // beside all other main containers and sidecars, after the last init container
};
// "init", "sidecar", "main".
std::string_view NameOf(Phase phase);
std::optional<Phase> PhaseFromName(std::string_view name);

// The devices that a pod may get. An empty list allows every device.
struct Constraints {
  std::vector<std::string> models;          // allowed models, by MatchesModel (model.h)
  std::vector<std::string> uuids;           // allowed devices
  std::vector<std::string> excluded_uuids;  // forbidden devices

  // A slice is checked by the model of its GPU and by both UUIDs.
  bool Allow(const Gpu& gpu) const;
  bool Allow(const Gpu& gpu, const MigSlice& slice) const;
  auto operator<=>(const Constraints&) const = default;
};

// Bounds that keep every sum over a pod or a node far below the limits of 64 bits.
inline constexpr int kMaxDevicesPerContainer = 1024;
inline constexpr size_t kMaxContainers = 1024;
inline constexpr Bytes kMaxShareMemory = GiB(1 << 20);

struct ContainerRequest {
  std::string name;
  Phase phase = Phase::kMain;
  Dialect dialect = Dialect::kNone;
  int count = 0;            // number of different devices; 0 if and only if the dialect is kNone
  Share per_gpu;            // the share of each device
  bool exclusive = false;   // whole GPUs, which no other pod shares; false for MIG slices
  std::string mig_profile;  // "1g.10gb" for dialect kNvidiaMig, else empty

  auto operator<=>(const ContainerRequest&) const = default;
};

// A pod's choice of placement policy, which overrides the scheduler's configuration.
enum class PackingPolicy : uint8_t {
  kBinpack,  // fill nodes and GPUs that are in use
  kSpread,   // take nodes and GPUs with the most free capacity
};
std::string_view NameOf(PackingPolicy policy);
std::optional<PackingPolicy> PackingPolicyFromName(std::string_view name);

struct DeviceRequest {
  // All containers of the pod in the order of its spec, init containers first. Includes containers
  // without devices, because older annotations count all of spec.containers (phase kMain).
  std::vector<ContainerRequest> containers;
  // All containers of dialect kGpuMem get the same GPU, which has room for their sum.
  bool one_gpu = false;
  // Applies to all containers, because it comes from the pod's annotations.
  Constraints constraints;
  // Set: shares are guaranteed and may use idle compute up to this limit
  // (tencent.com/vcuda-core-limit). Not set: the compute of a share is also its maximum.
  std::optional<MilliGpu> elastic_limit;
  std::optional<PackingPolicy> policy;

  bool requests_devices() const;
  // Groups of containers with devices that run at the same time, by position. A pod fits a node if
  // each group fits. Each init container forms a group with the sidecars before it; the last group
  // has all sidecars and main containers. A sidecar keeps its devices from group to group, while
  // the devices of an init container are free for the next group.
  std::vector<std::vector<size_t>> Stages() const;
  // Groups of containers with devices that use the same GPUs, by position. Containers that run at
  // the same time are in different groups, but the containers of one_gpu form one group. An init
  // container joins the main container's group that grows least, or forms a group of its own if
  // that needs less capacity. Placement picks GPUs for each group, and the agent grants by group.
  std::vector<std::vector<size_t>> Groups() const;
  // The largest sum, over the stages, of the shares of the containers of one_gpu; 0 without such
  // containers.
  Share OneGpuShare() const;

  auto operator<=>(const DeviceRequest&) const = default;
};

}  // namespace tessera::device
