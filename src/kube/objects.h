// SPDX-License-Identifier: Apache-2.0
// The parts of Pods, Nodes, ConfigMaps, Leases and PodDisruptionBudgets that decisions need, read
// from JSON or protobuf into equal values. What nobody decides by (images, volumes, probes, managed
// fields) is passed over without a copy, and of labels, annotations and resources only what `Keep`
// says stays: 20,000 pods are a few tens of MiB.
//
// Not for writing objects back: a patch says what changes (client.h).
// Threads: values and pure functions. Errors: INVALID_ARGUMENT names the field.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/kube/raw_object.h"
#include "src/kube/resources.h"

namespace tessera::kube {

using StringMap = std::map<std::string, std::string, std::less<>>;

// Which entries of the maps of an object stay. Empty: all of them.
struct Keep {
  using Predicate = std::function<bool(std::string_view key)>;
  Predicate label;
  Predicate annotation;
  Predicate resource;           // "cpu", "nvidia.com/gpu", ...
  bool containers_run = false;  // of pods: ids and ends, that only the node's own agent needs
};

struct ObjectMeta {
  std::string name;
  std::string ns;  // "" where the type has none
  Uid uid;
  std::string resource_version;
  StringMap labels;
  StringMap annotations;
  WallTime created;         // the epoch where it is not said
  bool deleting = false;    // has a deletionTimestamp: on its way out, its resources still held
  bool controlled = false;  // has a controller, which replaces it when it is gone
  bool operator==(const ObjectMeta&) const = default;
};

enum class PodPhase : uint8_t { kUnknown, kPending, kRunning, kSucceeded, kFailed };
enum class ContainerKind : uint8_t { kInit, kSidecar, kMain };

struct Container {
  std::string name;
  ContainerKind kind = ContainerKind::kMain;
  StringMap limits;  // quantities as the server writes them
  StringMap requests;
  bool operator==(const Container&) const = default;
};

struct PodObject {
  static constexpr ResourceType kType = kPods;
  ObjectMeta meta;
  std::string node_name;  // "" while it is not bound
  std::string scheduler_name;
  PodPhase phase = PodPhase::kUnknown;
  int32_t priority = 0;
  std::string nominated_node;   // kube-scheduler works on placing it there, or evicts for it there
  WallTime scheduled;           // when it was bound, by its condition PodScheduled
  uint64_t failed_attempt = 0;  // identifies what PodScheduled=False says of the last one; 0: none
  std::vector<std::string> gates;     // of scheduling, that are still there
  std::vector<Container> containers;  // init containers and sidecars first, in their order
  // By container, as the engine's client names them: "containerd://<id>". Of those that have been
  // started, and only where Keep asks for them.
  StringMap container_ids;
  // That do not run, or not again yet; likewise.
  std::set<std::string, std::less<>> ended_containers;

  // Its containers have ended for good: what it held is free.
  bool ended() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
  bool operator==(const PodObject&) const = default;
};

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
  bool operator==(const Taint&) const = default;
};

struct NodeObject {
  static constexpr ResourceType kType = kNodes;
  ObjectMeta meta;
  bool unschedulable = false;
  bool ready = false;  // its condition Ready is True
  std::vector<Taint> taints;
  StringMap capacity;
  StringMap allocatable;
  std::string internal_ip;  // its first address of type InternalIP; "" where it has none
  bool operator==(const NodeObject&) const = default;
};

struct ConfigMapObject {
  static constexpr ResourceType kType = kConfigMaps;
  ObjectMeta meta;
  StringMap data;  // without binaryData
  bool operator==(const ConfigMapObject&) const = default;
};

struct LeaseObject {
  static constexpr ResourceType kType = kLeases;
  ObjectMeta meta;
  std::string holder;  // "" where it was released
  std::chrono::seconds duration{0};
  WallTime acquired;
  WallTime renewed;
  int32_t transitions = 0;
  bool operator==(const LeaseObject&) const = default;
};

// Which objects are meant, by their labels.
struct LabelSelector {
  enum class Operator : uint8_t { kIn, kNotIn, kExists, kDoesNotExist };
  struct Requirement {
    std::string key;
    Operator op = Operator::kIn;
    std::vector<std::string> values;
    bool operator==(const Requirement&) const = default;
  };
  std::vector<Requirement> requirements;  // of matchLabels, too

  // All objects where it requires nothing.
  bool Matches(const StringMap& labels) const;
  bool operator==(const LabelSelector&) const = default;
};

struct PodDisruptionBudgetObject {
  static constexpr ResourceType kType = kPodDisruptionBudgets;
  ObjectMeta meta;
  std::optional<LabelSelector> selector;  // none: no pod
  int32_t disruptions_allowed = 0;
  // Pods whose eviction the API server has counted already, by name.
  std::set<std::string, std::less<>> disrupted;
  bool operator==(const PodDisruptionBudgetObject&) const = default;
};

// Name, namespace, uid and version, without labels and annotations; `raw` may be of any type.
Status DecodeMeta(const RawObject& raw, ObjectMeta* out);

// Only metadata and whichever fields the struct has; fills a fresh `out`.
Status DecodeObject(const RawObject& raw, const Keep& keep, PodObject* out);
Status DecodeObject(const RawObject& raw, const Keep& keep, NodeObject* out);
Status DecodeObject(const RawObject& raw, const Keep& keep, ConfigMapObject* out);
Status DecodeObject(const RawObject& raw, const Keep& keep, LeaseObject* out);
Status DecodeObject(const RawObject& raw, const Keep& keep, PodDisruptionBudgetObject* out);

template <typename T>
Result<T> Decode(const RawObject& raw, const Keep& keep = {}) {
  T object;
  RETURN_IF_ERROR(DecodeObject(raw, keep, &object));
  return object;
}

}  // namespace tessera::kube
