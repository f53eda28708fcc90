// SPDX-License-Identifier: Apache-2.0
// Field numbers are from generated.proto in k8s.io/api (core/v1, coordination/v1, policy/v1) and in
// k8s.io/apimachinery (pkg/apis/meta/v1, pkg/api/resource). Kubernetes never changes the number of
// a field.
#include <iterator>
#include <utility>

#include "src/formats/wire_reader.h"
#include "src/kube/object_decoders.h"

namespace tessera::kube {
namespace {

struct MapEntry {
  std::string_view key;
  std::string_view value;
};

Status ReadEntry(std::string_view message, MapEntry* entry) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) entry->key = reader.Bytes();
    if (reader.field() == 2) entry->value = reader.Bytes();
  }
  return reader.status();
}

Status AddText(std::string_view message, const KeptFields::Predicate& keep, StringMap* map) {
  MapEntry entry;
  RETURN_IF_ERROR(ReadEntry(message, &entry));
  if (Keeps(keep, entry.key)) map->insert_or_assign(std::string(entry.key), entry.value);
  return Status::Ok();
}

// Reads an entry of map<string, Quantity>; a Quantity is a message with a string.
Status AddQuantity(std::string_view message, const KeptFields::Predicate& keep, StringMap* map) {
  MapEntry entry;
  RETURN_IF_ERROR(ReadEntry(message, &entry));
  if (!Keeps(keep, entry.key)) return Status::Ok();
  std::string_view text;
  WireReader quantity(entry.value);
  while (quantity.Next()) {
    if (quantity.field() == 1) text = quantity.Bytes();
  }
  map->insert_or_assign(std::string(entry.key), text);
  return quantity.status();
}

// Reads Time and MicroTime. An unset time is an empty message.
Status ReadTime(std::string_view message, WallTime* time) {
  int64_t seconds = 0;
  int64_t nanos = 0;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) seconds = reader.Int();
    if (reader.field() == 2) nanos = reader.Int();
  }
  RETURN_IF_ERROR(reader.status());
  // The range of 64-bit nanoseconds; ParseRfc3339 has the same bounds in years.
  constexpr int64_t kMaxSeconds = 7'000'000'000;
  if (seconds < -kMaxSeconds || seconds > kMaxSeconds || nanos < 0 || nanos > 999'999'999) {
    return Error(Code::kInvalidArgument, "a time is out of range");
  }
  *time = WallTime(std::chrono::seconds(seconds) + Duration(nanos));
  return Status::Ok();
}

Status ReadMeta(std::string_view message, const KeptFields& kept, ObjectMeta* out) {
  WireReader reader(message);
  while (reader.Next()) {
    const uint32_t field = reader.field();
    if (field == 1) out->name = reader.Bytes();
    if (field == 3) out->ns = reader.Bytes();
    if (field == 5) out->uid = Uid(reader.Bytes());
    if (field == 6) out->resource_version = reader.Bytes();
    if (field == 8) RETURN_IF_ERROR(ReadTime(reader.Bytes(), &out->created));
    if (field == 9) out->deleting = true;
    if (field == 11) RETURN_IF_ERROR(AddText(reader.Bytes(), kept.label, &out->labels));
    if (field == 12) RETURN_IF_ERROR(AddText(reader.Bytes(), kept.annotation, &out->annotations));
    if (field != 13) continue;  // ownerReferences
    WireReader owner(reader.Bytes());
    while (owner.Next()) {
      // The field "controller".
      if (owner.field() == 6 && owner.Bool()) out->has_controller = true;
    }
    RETURN_IF_ERROR(owner.status());
  }
  return reader.status();
}

Status ReadContainer(std::string_view message, const KeptFields& kept, bool init, Container* out) {
  out->kind = init ? ContainerKind::kInit : ContainerKind::kMain;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) out->name = reader.Bytes();
    // The field "restartPolicy", which makes an init container a sidecar.
    if (reader.field() == 24 && init && reader.Bytes() == "Always") {
      out->kind = ContainerKind::kSidecar;
    }
    if (reader.field() != 8) continue;  // resources
    WireReader resources(reader.Bytes());
    while (resources.Next()) {
      StringMap* map = resources.field() == 1   ? &out->limits
                       : resources.field() == 2 ? &out->requests
                                                : nullptr;
      if (map != nullptr) RETURN_IF_ERROR(AddQuantity(resources.Bytes(), kept.resource, map));
    }
    RETURN_IF_ERROR(resources.status());
  }
  return reader.status();
}

Status ReadRequirement(std::string_view message, LabelSelector::Requirement* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) out->key = reader.Bytes();
    if (reader.field() == 2) {
      ASSIGN_OR_RETURN(out->op, OperatorOf(reader.Bytes()));
    }
    if (reader.field() == 3) out->values.emplace_back(reader.Bytes());
  }
  return reader.status();
}

Status ReadToleration(std::string_view message, NodeConstraints::Toleration* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) out->key = reader.Bytes();
    if (reader.field() == 2) out->any_value = reader.Bytes() == "Exists";
    if (reader.field() == 3) out->value = reader.Bytes();
    if (reader.field() == 4) out->effect = reader.Bytes();
  }
  return reader.status();
}

Status ReadTerm(std::string_view message, NodeConstraints::AffinityTerm* out) {
  WireReader reader(message);
  while (reader.Next()) {
    std::vector<LabelSelector::Requirement>* all = reader.field() == 1   ? &out->labels.requirements
                                                   : reader.field() == 2 ? &out->fields.requirements
                                                                         : nullptr;
    if (all != nullptr) RETURN_IF_ERROR(ReadRequirement(reader.Bytes(), &all->emplace_back()));
  }
  return reader.status();
}

// Reads affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: each is the field 1
// of its message.
Status ReadAffinity(std::string_view message, NodeConstraints* out) {
  WireReader affinity(message);
  while (affinity.Next()) {
    if (affinity.field() != 1) continue;
    WireReader node(affinity.Bytes());
    while (node.Next()) {
      if (node.field() != 1) continue;
      std::vector<NodeConstraints::AffinityTerm>& terms = out->required_affinity.emplace();
      WireReader required(node.Bytes());
      while (required.Next()) {
        if (required.field() == 1)
          RETURN_IF_ERROR(ReadTerm(required.Bytes(), &terms.emplace_back()));
      }
      RETURN_IF_ERROR(required.status());
    }
    RETURN_IF_ERROR(node.status());
  }
  return affinity.status();
}

Status ReadPodSpec(std::string_view message, const KeptFields& kept, PodObject* out) {
  std::vector<Container> main;  // kept apart: the encoding has init containers last
  WireReader reader(message);
  while (reader.Next()) {
    const uint32_t field = reader.field();
    if (field == 2 || field == 20) {
      const bool init = field == 20;
      Container& container = (init ? out->containers : main).emplace_back();
      RETURN_IF_ERROR(ReadContainer(reader.Bytes(), kept, init, &container));
    }
    if (field == 10) out->node_name = reader.Bytes();
    if (field == 19) out->scheduler_name = reader.Bytes();
    if (field == 25) out->priority = static_cast<int32_t>(reader.Int());
    if (field == 38) {  // schedulingGates
      WireReader gate(reader.Bytes());
      std::string& name = out->gates.emplace_back();
      while (gate.Next()) {
        if (gate.field() == 1) name = gate.Bytes();
      }
      RETURN_IF_ERROR(gate.status());
    }
    if (!kept.constraints) continue;
    NodeConstraints& constraints = out->constraints;
    if (field == 7) RETURN_IF_ERROR(AddText(reader.Bytes(), {}, &constraints.selector));
    if (field == 18) RETURN_IF_ERROR(ReadAffinity(reader.Bytes(), &constraints));
    if (field == 22) {
      RETURN_IF_ERROR(ReadToleration(reader.Bytes(), &constraints.tolerations.emplace_back()));
    }
  }
  out->containers.insert(out->containers.end(), std::make_move_iterator(main.begin()),
                         std::make_move_iterator(main.end()));
  return reader.status();
}

Status ReadContainerStatus(std::string_view message, PodObject* out) {
  std::string_view name, state, id;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) name = reader.Bytes();
    if (reader.field() == 2) state = reader.Bytes();
    if (reader.field() == 8) id = reader.Bytes();
  }
  RETURN_IF_ERROR(reader.status());
  if (!id.empty()) out->container_ids.insert_or_assign(std::string(name), id);
  WireReader kinds(state);  // waiting, running or terminated
  while (kinds.Next()) {
    if (kinds.field() == 3) out->ended_containers.emplace(name);
  }
  return kinds.status();
}

Status ReadRunState(std::string_view message, ContainerRunState* out) {
  WireReader state(message);
  while (state.Next()) {
    if (state.field() != 1 && state.field() != 3) continue;  // waiting, terminated
    const bool waits = state.field() == 1;
    WireReader why(state.Bytes());
    while (why.Next()) {
      if (waits && why.field() == 1) out->waiting = why.Bytes();
      if (!waits && why.field() == 1) out->exit_code = why.Int();
      if (!waits && why.field() == 3) out->ended = why.Bytes();
    }
    RETURN_IF_ERROR(why.status());
  }
  return state.status();
}

Status ReadRunSummary(std::string_view message, PodRunSummary* out) {
  ContainerRunState container;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 2) RETURN_IF_ERROR(ReadRunState(reader.Bytes(), &container));
    if (reader.field() == 5) container.restarts = reader.Int();
  }
  AddToSummary(container, out);
  return reader.status();
}

Status ReadPodCondition(std::string_view message, PodObject* out) {
  std::string_view type, condition_status, since, reason, message_text;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) type = reader.Bytes();
    if (reader.field() == 2) condition_status = reader.Bytes();
    if (reader.field() == 4) since = reader.Bytes();
    if (reader.field() == 5) reason = reader.Bytes();
    if (reader.field() == 6) message_text = reader.Bytes();
  }
  RETURN_IF_ERROR(reader.status());
  if (type != "PodScheduled") return Status::Ok();
  if (condition_status == "False")
    out->failed_attempt_hash = FailedAttemptHash(reason, message_text);
  return condition_status == "True" ? ReadTime(since, &out->scheduled_at) : Status::Ok();
}

Status ReadPodStatus(std::string_view message, const KeptFields& kept, PodObject* out) {
  WireReader status(message);
  while (status.Next()) {
    if (status.field() == 1) out->phase = PodPhaseOf(status.Bytes());
    if (status.field() == 2) RETURN_IF_ERROR(ReadPodCondition(status.Bytes(), out));
    if (status.field() == 11) out->nominated_node = status.Bytes();
    const bool is_container = status.field() == 8 || status.field() == 10;  // main, init
    if (!is_container) continue;
    const std::string_view container = status.Bytes();
    if (kept.container_status) RETURN_IF_ERROR(ReadContainerStatus(container, out));
    if (kept.run_summary) RETURN_IF_ERROR(ReadRunSummary(container, &out->run_summary));
  }
  return status.status();
}

Status ReadSelector(std::string_view message, LabelSelector* out) {
  StringMap labels;
  std::vector<LabelSelector::Requirement> expressions;
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) RETURN_IF_ERROR(AddText(reader.Bytes(), {}, &labels));
    if (reader.field() == 2) {
      RETURN_IF_ERROR(ReadRequirement(reader.Bytes(), &expressions.emplace_back()));
    }
  }
  for (const auto& [key, value] : labels) {
    out->requirements.push_back({key, LabelSelector::Operator::kIn, {value}});
  }
  out->requirements.insert(out->requirements.end(), expressions.begin(), expressions.end());
  return reader.status();
}

Status ReadBudgetStatus(std::string_view message, PodDisruptionBudgetObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 3) out->disruptions_allowed = static_cast<int32_t>(reader.Int());
    if (reader.field() != 2) continue;
    MapEntry entry;
    RETURN_IF_ERROR(ReadEntry(reader.Bytes(), &entry));
    out->disrupted_pods.emplace(entry.key);
  }
  return reader.status();
}

Status ReadTaint(std::string_view message, Taint* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) out->key = reader.Bytes();
    if (reader.field() == 2) out->value = reader.Bytes();
    if (reader.field() == 3) out->effect = reader.Bytes();
  }
  return reader.status();
}

Status ReadNodeSpec(std::string_view message, NodeObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 4) out->unschedulable = reader.Bool();
    if (reader.field() == 5)
      RETURN_IF_ERROR(ReadTaint(reader.Bytes(), &out->taints.emplace_back()));
  }
  return reader.status();
}

Status ReadNodeStatus(std::string_view message, const KeptFields& kept, NodeObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1 || reader.field() == 2) {
      StringMap& map = reader.field() == 1 ? out->capacity : out->allocatable;
      RETURN_IF_ERROR(AddQuantity(reader.Bytes(), kept.resource, &map));
    }
    if (reader.field() != 4 && reader.field() != 5) continue;
    // A condition has type and status, an address has type and value, both as fields 1 and 2.
    MapEntry entry;
    const bool is_address = reader.field() == 5;
    RETURN_IF_ERROR(ReadEntry(reader.Bytes(), &entry));
    if (!is_address && entry.key == "Ready") out->ready = entry.value == "True";
    if (is_address && entry.key == "InternalIP" && out->internal_ip.empty()) {
      out->internal_ip = entry.value;
    }
  }
  return reader.status();
}

Status ReadLeaseSpec(std::string_view message, LeaseObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    const uint32_t field = reader.field();
    if (field == 1) out->holder = reader.Bytes();
    if (field == 2) out->duration = std::chrono::seconds(static_cast<int32_t>(reader.Int()));
    if (field == 3) RETURN_IF_ERROR(ReadTime(reader.Bytes(), &out->acquire_time));
    if (field == 4) RETURN_IF_ERROR(ReadTime(reader.Bytes(), &out->renew_time));
    if (field == 5) out->transitions = static_cast<int32_t>(reader.Int());
  }
  return reader.status();
}

}  // namespace

Status FromProtobuf(std::string_view message, const KeptFields& kept, ObjectMeta* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) RETURN_IF_ERROR(ReadMeta(reader.Bytes(), kept, out));
  }
  return reader.status();
}

Status FromProtobuf(std::string_view message, const KeptFields& kept, PodObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) RETURN_IF_ERROR(ReadMeta(reader.Bytes(), kept, &out->meta));
    if (reader.field() == 2) RETURN_IF_ERROR(ReadPodSpec(reader.Bytes(), kept, out));
    if (reader.field() == 3) RETURN_IF_ERROR(ReadPodStatus(reader.Bytes(), kept, out));
  }
  return reader.status();
}

Status FromProtobuf(std::string_view message, const KeptFields& kept, NodeObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) RETURN_IF_ERROR(ReadMeta(reader.Bytes(), kept, &out->meta));
    if (reader.field() == 2) RETURN_IF_ERROR(ReadNodeSpec(reader.Bytes(), out));
    if (reader.field() == 3) RETURN_IF_ERROR(ReadNodeStatus(reader.Bytes(), kept, out));
  }
  return reader.status();
}

Status FromProtobuf(std::string_view message, const KeptFields& kept, ConfigMapObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) RETURN_IF_ERROR(ReadMeta(reader.Bytes(), kept, &out->meta));
    if (reader.field() == 2) RETURN_IF_ERROR(AddText(reader.Bytes(), {}, &out->data));
  }
  return reader.status();
}

Status FromProtobuf(std::string_view message, const KeptFields& kept,
                    PodDisruptionBudgetObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) RETURN_IF_ERROR(ReadMeta(reader.Bytes(), kept, &out->meta));
    if (reader.field() == 3) RETURN_IF_ERROR(ReadBudgetStatus(reader.Bytes(), out));
    if (reader.field() != 2) continue;
    WireReader spec(reader.Bytes());
    while (spec.Next()) {
      if (spec.field() == 2) RETURN_IF_ERROR(ReadSelector(spec.Bytes(), &out->selector.emplace()));
    }
    RETURN_IF_ERROR(spec.status());
  }
  return reader.status();
}

Status FromProtobuf(std::string_view message, const KeptFields& kept, LeaseObject* out) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.field() == 1) RETURN_IF_ERROR(ReadMeta(reader.Bytes(), kept, &out->meta));
    if (reader.field() == 2) RETURN_IF_ERROR(ReadLeaseSpec(reader.Bytes(), out));
  }
  return reader.status();
}

}  // namespace tessera::kube
