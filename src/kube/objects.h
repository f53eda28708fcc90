// SPDX-License-Identifier: Apache-2.0
// The fields of Pods, Nodes, ConfigMaps, Leases and PodDisruptionBudgets that Tessera uses, decoded
// from JSON or protobuf into equal values. Unused fields (images, volumes, probes, managed fields)
// are skipped without a copy. Labels, annotations and resources are filtered by `KeptFields`. So
// 20,000 pods take a few tens of MiB.
//
// Does not write objects: use client.h. Threads: any number, on separate objects. Errors:
// INVALID_ARGUMENT names the field.
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
#include "src/base/strings.h"
#include "src/base/uid.h"
#include "src/kube/raw_object.h"
#include "src/kube/resources.h"
#include "src/kube/selectors.h"

namespace tessera::kube {

// The parts of an object that decoding keeps. An empty predicate keeps all entries of its map.
struct KeptFields {
  using Predicate = std::function<bool(std::string_view key)>;
  Predicate label;
  Predicate annotation;
  Predicate resource;  // "cpu", "nvidia.com/gpu", ...
  // Whether to keep PodObject::container_ids and ended_containers, which only the node's agent
  // needs.
  bool container_status = false;
  // Whether to keep PodObject::constraints, which only explanations to users need.
  bool constraints = false;
  // Whether to keep PodObject::run_summary, which is only shown to users.
  bool run_summary = false;
  // The field manager of MetadataObject::applied_fields (metadata_object.h).
  std::string manager;
};

struct ObjectMeta {
  std::string name;
  std::string ns;  // "" if the type has none
  Uid uid;
  std::string resource_version;
  StringMap labels;
  StringMap annotations;
  WallTime created;             // the epoch if unknown
  bool deleting = false;        // has a deletionTimestamp, but still exists
  bool has_controller = false;  // has a controller, which replaces it after a deletion
  bool operator==(const ObjectMeta&) const = default;
};

enum class PodPhase : uint8_t { kUnknown, kPending, kRunning, kSucceeded, kFailed };
enum class ContainerKind : uint8_t { kInit, kSidecar, kMain };

struct Container {
  std::string name;
  ContainerKind kind = ContainerKind::kMain;
  StringMap limits;  // quantities as in the object
  StringMap requests;
  bool operator==(const Container&) const = default;
};

// How the containers of a pod run.
struct PodRunSummary {
  int32_t restarts = 0;  // of all containers
  // Why a container failed or cannot start: "ImagePullBackOff", "Error (exit code 1)". "" if there
  // is no such container. With several such containers, the reason of one of them.
  std::string reason;
  bool operator==(const PodRunSummary&) const = default;
};

struct PodObject {
  static constexpr ResourceType kType = kPods;
  ObjectMeta meta;
  std::string node_name;  // "" while it is not bound
  std::string scheduler_name;
  PodPhase phase = PodPhase::kUnknown;
  int32_t priority = 0;
  std::string nominated_node;  // status.nominatedNodeName
  WallTime scheduled_at;       // time of binding, from condition PodScheduled
  // Hash of the reason and the message of a failed scheduling attempt, from condition
  // PodScheduled=False; 0: none.
  uint64_t failed_attempt_hash = 0;
  std::vector<std::string> gates;     // remaining scheduling gates
  std::vector<Container> containers;  // init containers and sidecars first, in order of the spec
  NodeConstraints constraints;        // only with KeptFields::constraints
  // Ids of started containers by name: "containerd://<id>". Only with KeptFields::container_status.
  StringMap container_ids;
  // Containers that have ended and are not running again. Only with KeptFields::container_status.
  std::set<std::string, std::less<>> ended_containers;
  PodRunSummary run_summary;  // only with KeptFields::run_summary

  // Whether all containers have ended permanently, so that the pod's resources are free.
  bool ended() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
  bool operator==(const PodObject&) const = default;
};

struct NodeObject {
  static constexpr ResourceType kType = kNodes;
  ObjectMeta meta;
  bool unschedulable = false;
  bool ready = false;  // condition Ready is True
  std::vector<Taint> taints;
  StringMap capacity;
  StringMap allocatable;
  std::string internal_ip;  // first address of type InternalIP; "" if none
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
  std::string holder;  // "" if released
  std::chrono::seconds duration{0};
  WallTime acquire_time;
  WallTime renew_time;
  int32_t transitions = 0;
  bool operator==(const LeaseObject&) const = default;
};

struct PodDisruptionBudgetObject {
  static constexpr ResourceType kType = kPodDisruptionBudgets;
  ObjectMeta meta;
  std::optional<LabelSelector> selector;  // nullopt: selects no pod
  int32_t disruptions_allowed = 0;
  // Names of pods whose eviction the API server has already counted.
  std::set<std::string, std::less<>> disrupted_pods;
  bool operator==(const PodDisruptionBudgetObject&) const = default;
};

// Decodes name, namespace, uid and version, without labels and annotations. `raw` may be of any
// type.
Status DecodeMeta(const RawObject& raw, ObjectMeta* out);

// Decodes metadata and the struct's fields: for the structs of this header, which have a kType.
// REQUIRES: `out` is default-constructed.
template <typename T>
requires requires { T::kType; }
Status DecodeObject(const RawObject& raw, const KeptFields& kept, T* out);

template <typename T>
Result<T> Decode(const RawObject& raw, const KeptFields& kept = {}) {
  T object;
  RETURN_IF_ERROR(DecodeObject(raw, kept, &object));
  return object;
}

}  // namespace tessera::kube
