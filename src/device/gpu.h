// SPDX-License-Identifier: Apache-2.0
// The types for a GPU, the links between GPUs, and the GPUs of a node. src/gpu finds GPUs, and
// src/placement picks them.
//
// Threads: any number, on separate objects. Threads share a NodeInventory as shared_ptr<const>.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/units.h"

namespace tessera::device {

// Whether a GPU is offered to pods. `reason` is a text for operators; empty when healthy.
struct Health {
  enum class State {
    kHealthy,
    kSuspect,     // offered: the driver reported an application error; the GPU works
    kUnhealthy,   // not offered
    kRecovering,  // not offered: repaired, and under observation
    kWithheld,    // not offered: a deleted pod still uses it; other holders continue
  };

  State state = State::kHealthy;
  std::string reason;

  static Health Healthy() { return {}; }
  static Health Unhealthy(std::string reason) { return {State::kUnhealthy, std::move(reason)}; }
  // Whether new pods may get the GPU.
  bool ok() const { return state == State::kHealthy || state == State::kSuspect; }
  // Whether containers that hold the GPU may restart.
  bool usable() const { return ok() || state == State::kWithheld; }
  auto operator<=>(const Health&) const = default;
};

// "healthy", "suspect", "unhealthy", "recovering", "withheld".
std::string_view NameOf(Health::State state);

struct ComputeCapability {
  int major = 0;
  int minor = 0;
  auto operator<=>(const ComputeCapability&) const = default;
};

// A MIG slice that is offered as a device: one GPU instance with its compute instance.
struct MigSlice {
  std::string uuid;      // "MIG-…"; identifies the slice everywhere
  std::string profile;   // "1g.10gb", "1g.10gb.me": spelled as in resource names, see mig_profile.h
  int gpu_instance = 0;  // the driver's id of the GPU instance, unique on its GPU
  Bytes memory;
  Health health;  // of the slice alone; slices of an unhealthy GPU are not offered

  auto operator<=>(const MigSlice&) const = default;
};

// The part of a multi-node NVLink fabric to which a GPU belongs.
struct FabricClique {
  std::string cluster_uuid;  // "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"
  uint32_t clique = 0;       // GPUs of one clique reach each other over NVLink
  auto operator<=>(const FabricClique&) const = default;
};

struct Gpu {
  std::string uuid;              // "GPU-…"; identifies the GPU everywhere
  int index = 0;                 // in the driver's order, which is PCI order
  std::optional<int> minor;      // N of /dev/nvidiaN; unknown only on an unhealthy GPU
  std::string model;             // "NVIDIA A100-SXM4-80GB"; empty if the driver does not report it
  Bytes memory;                  // 0 if the driver does not report it (integrated GPUs)
  std::string pci_bus_id;        // "0000:07:00.0", lower case as in sysfs; may be empty
  std::optional<int> numa_node;  // none on machines without NUMA
  std::optional<ComputeCapability> compute_capability;
  Health health;
  bool mig_capable = false;            // the driver reports a MIG mode for this GPU, on or off
  std::optional<FabricClique> fabric;  // once the fabric manager has registered the GPU
  // nullopt while MIG is off. While MIG is on, the GPU itself is not offered, even if it has no
  // slices.
  std::optional<std::vector<MigSlice>> mig;

  auto operator<=>(const Gpu&) const = default;
};

// The PCIe path between two GPUs, far to near, with its score in NVIDIA's allocator.
enum class PcieLevel : uint8_t {
  kUnknown,       // 0
  kSystem,        // 10: across CPU sockets ("SYS")
  kNode,          // 20: one NUMA node, several host bridges ("NODE")
  kHostBridge,    // 30: one host bridge ("PHB")
  kMultiSwitch,   // 40: several PCIe switches ("PXB")
  kSingleSwitch,  // 50: one PCIe switch ("PIX")
  kSameBoard,     // 60: one board ("PSB")
};

// More NVLinks than any GPU has. A larger number in an annotation is rejected.
inline constexpr int kMaxNvLinks = 36;

struct Link {
  PcieLevel pcie = PcieLevel::kUnknown;
  uint8_t nvlinks = 0;  // direct links; through NVSwitch: the smaller of both GPUs' link counts
  bool via_nvswitch = false;

  bool known() const { return pcie != PcieLevel::kUnknown || nvlinks > 0; }
  auto operator<=>(const Link&) const = default;
};

// 10 … 60 for the PCIe level plus 100 for each NVLink; 0 for an unknown link. A multiple of
// kLinkScoreUnit, at most kMaxLinkScore.
int ScoreOf(const Link& link);
inline constexpr int kLinkScoreUnit = 10;
inline constexpr int kMaxLinkScore = 60 + 100 * kMaxNvLinks;
// "NV12", "NVS18" (through NVSwitch), "SYS", "NV4+NODE", "?".
std::string NameOf(const Link& link);
// The inverse of NameOf; nullopt if `name` is not the name of a link.
std::optional<Link> LinkFromName(std::string_view name);

// Links of all pairs of n GPUs, by position in NodeInventory::gpus. Symmetric by construction.
class LinkMatrix {
 public:
  LinkMatrix() = default;
  explicit LinkMatrix(size_t size);

  size_t size() const { return size_; }
  // REQUIRES: a != b, both < size().
  const Link& At(size_t a, size_t b) const { return links_[PositionOf(a, b)]; }
  void Set(size_t a, size_t b, Link link) { links_[PositionOf(a, b)] = link; }
  auto operator<=>(const LinkMatrix&) const = default;

 private:
  size_t PositionOf(size_t a, size_t b) const;

  size_t size_ = 0;
  std::vector<Link> links_;  // the pairs below the diagonal, row by row
};

struct NodeInventory {
  std::string driver_version;      // "550.163.01"; empty while there is no driver
  int cuda_version = 0;            // 12040 is 12.4
  std::vector<Gpu> gpus;           // by index, each UUID once; includes unhealthy GPUs
  LinkMatrix links;                // of size gpus.size()
  int unidentified = 0;            // GPUs that the driver counts but cannot identify
  std::string problem;             // why the node has no GPU at all: no driver, or a hanging driver
  std::string runtime_problem;     // why the runtime cannot give GPUs to containers
  std::vector<std::string> notes;  // hints for operators; they make no GPU unavailable

  // Null if the node has no such device.
  const Gpu* Find(std::string_view uuid) const;
  const Gpu* FindByMinor(int minor) const;
  const MigSlice* FindMigSlice(std::string_view uuid) const;
  size_t healthy_count() const;
  auto operator<=>(const NodeInventory&) const = default;
};

}  // namespace tessera::device
