// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "src/kube/object_decoders.h"
#include "src/kube/times.h"

namespace tessera::kube {
namespace {

// Reads the members of one object by name. Missing or null members are skipped; a wrong type is an
// error of the outermost object, which status() returns.
class Fields {
 public:
  // `key` is the name of `object` in `parent`, which gets the errors.
  explicit Fields(const Json* object, Fields* parent = nullptr, std::string_view key = {})
      : object_(object), parent_(parent), key_(key) {
    if (object_ == nullptr || object_->is_object()) return;
    Fail(Error(Code::kInvalidArgument, "{} instead of an object", KindName(object_->kind())));
    object_ = nullptr;
  }
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  const Json* Find(std::string_view key) const {
    const Json* found = object_ == nullptr ? nullptr : object_->Find(key);
    return found != nullptr && !found->is_null() ? found : nullptr;
  }
  std::string Text(std::string_view key) {
    return Find(key) == nullptr ? "" : Take(object_->StringAt(key), std::string());
  }
  int64_t Int(std::string_view key) {
    return Find(key) == nullptr ? 0 : Take(object_->IntAt(key), int64_t{0});
  }
  bool Flag(std::string_view key) {
    return Find(key) != nullptr && Take(object_->BoolAt(key), false);
  }
  WallTime Time(std::string_view key) {
    const std::string text = Text(key);
    return text.empty() ? WallTime{} : Take(ParseRfc3339(text), WallTime{});
  }
  Fields Object(std::string_view key) { return Fields(Find(key), this, key); }
  // Reads values that are strings, and numbers as their original text, because quantities may be
  // either.
  void Map(std::string_view key, const KeptFields::Predicate& keep, StringMap* out) {
    Fields inner = Object(key);
    if (inner.object_ == nullptr) return;
    for (const auto& [name, value] : inner.object_->members()) {
      if (!Keeps(keep, name)) continue;
      if (value.is_string()) {
        out->insert_or_assign(name, value.string_value());
      } else if (value.is_number()) {
        out->insert_or_assign(name, value.number_text());
      } else {
        Fail(Error(Code::kInvalidArgument, "{}.{} is {}, not text", key, name,
                   KindName(value.kind())));
      }
    }
  }
  template <typename F>
  void Each(std::string_view key, const F& read) {
    const Json* list = Find(key);
    if (list == nullptr) return;
    if (!list->is_array()) {
      return Fail(
          Error(Code::kInvalidArgument, "{} is {}, not an array", key, KindName(list->kind())));
    }
    for (const Json& item : list->items()) {
      Fields inner(&item, this, key);
      read(inner);
    }
  }
  std::vector<std::string> Texts(std::string_view key) {
    std::vector<std::string> texts;
    const Json* list = Find(key);
    if (list == nullptr) return texts;
    if (!list->is_array()) {
      Fail(Error(Code::kInvalidArgument, "{} is {}, not an array", key, KindName(list->kind())));
      return texts;
    }
    for (const Json& item : list->items()) {
      if (item.is_string()) {
        texts.push_back(item.string_value());
      } else {
        Fail(Error(Code::kInvalidArgument, "{} holds {}, not text", key, KindName(item.kind())));
      }
    }
    return texts;
  }
  // Returns the value, or `otherwise` after an error. status() keeps the first error.
  template <typename T>
  T Take(Result<T> result, T otherwise) {
    if (result.ok()) return *std::move(result);
    Fail(result.status());
    return otherwise;
  }
  const Status& status() const { return status_; }

 private:
  void Fail(const Status& status) {
    if (parent_ != nullptr) return parent_->Fail(status.Annotate(key_));
    if (status_.ok()) status_ = status;
  }

  const Json* object_;
  Fields* const parent_;
  const std::string_view key_;
  Status status_;
};

void ReadMeta(Fields& object, const KeptFields& kept, ObjectMeta* out) {
  Fields meta = object.Object("metadata");
  out->name = meta.Text("name");
  out->ns = meta.Text("namespace");
  out->uid = Uid(meta.Text("uid"));
  out->resource_version = meta.Text("resourceVersion");
  meta.Map("labels", kept.label, &out->labels);
  meta.Map("annotations", kept.annotation, &out->annotations);
  out->created = meta.Time("creationTimestamp");
  out->deleting = meta.Find("deletionTimestamp") != nullptr;
  meta.Each("ownerReferences", [&](Fields& owner) {
    if (owner.Flag("controller")) out->has_controller = true;
  });
}

void ReadContainers(Fields& spec, std::string_view key, bool init, const KeptFields& kept,
                    std::vector<Container>* out) {
  spec.Each(key, [&](Fields& fields) {
    Container& container = out->emplace_back();
    container.name = fields.Text("name");
    container.kind = !init                                      ? ContainerKind::kMain
                     : fields.Text("restartPolicy") == "Always" ? ContainerKind::kSidecar
                                                                : ContainerKind::kInit;
    Fields resources = fields.Object("resources");
    resources.Map("limits", kept.resource, &container.limits);
    resources.Map("requests", kept.resource, &container.requests);
  });
}

void ReadRequirements(Fields& fields, std::string_view key,
                      std::vector<LabelSelector::Requirement>* out) {
  fields.Each(key, [&](Fields& expression) {
    LabelSelector::Requirement& requirement = out->emplace_back();
    requirement.key = expression.Text("key");
    requirement.op = expression.Take(OperatorOf(expression.Text("operator")), requirement.op);
    requirement.values = expression.Texts("values");
  });
}

void ReadConstraints(Fields& spec, NodeConstraints* out) {
  spec.Map("nodeSelector", {}, &out->selector);
  spec.Each("tolerations", [&](Fields& fields) {
    out->tolerations.push_back({.key = fields.Text("key"),
                                .any_value = fields.Text("operator") == "Exists",
                                .value = fields.Text("value"),
                                .effect = fields.Text("effect")});
  });
  Fields affinity = spec.Object("affinity");
  Fields node = affinity.Object("nodeAffinity");
  constexpr std::string_view kRequired = "requiredDuringSchedulingIgnoredDuringExecution";
  if (node.Find(kRequired) != nullptr) {
    std::vector<NodeConstraints::AffinityTerm>& terms = out->required_affinity.emplace();
    Fields required = node.Object(kRequired);
    required.Each("nodeSelectorTerms", [&](Fields& fields) {
      NodeConstraints::AffinityTerm& term = terms.emplace_back();
      ReadRequirements(fields, "matchExpressions", &term.labels.requirements);
      ReadRequirements(fields, "matchFields", &term.fields.requirements);
    });
  }
}

void ReadRunSummary(Fields& container, PodRunSummary* out) {
  Fields state = container.Object("state");
  const int64_t restarts = container.Int("restartCount");
  Fields waiting = state.Object("waiting");
  Fields ended = state.Object("terminated");
  AddToSummary({.waiting = waiting.Text("reason"),
                .ended = ended.Text("reason"),
                .exit_code = ended.Int("exitCode"),
                .restarts = restarts},
               out);
}

}  // namespace

Status FromJson(const Json& object, const KeptFields& kept, ObjectMeta* out) {
  Fields fields(&object);
  ReadMeta(fields, kept, out);
  return fields.status();
}

Status FromJson(const Json& object, const KeptFields& kept, PodObject* out) {
  Fields fields(&object);
  ReadMeta(fields, kept, &out->meta);
  Fields spec = fields.Object("spec");
  out->node_name = spec.Text("nodeName");
  out->scheduler_name = spec.Text("schedulerName");
  out->priority = static_cast<int32_t>(spec.Int("priority"));
  spec.Each("schedulingGates", [&](Fields& gate) { out->gates.push_back(gate.Text("name")); });
  ReadContainers(spec, "initContainers", /*init=*/true, kept, &out->containers);
  ReadContainers(spec, "containers", /*init=*/false, kept, &out->containers);
  if (kept.constraints) ReadConstraints(spec, &out->constraints);
  Fields status = fields.Object("status");
  out->phase = PodPhaseOf(status.Text("phase"));
  out->nominated_node = status.Text("nominatedNodeName");
  status.Each("conditions", [&](Fields& condition) {
    if (condition.Text("type") != "PodScheduled") return;
    const std::string condition_status = condition.Text("status");
    if (condition_status == "True") out->scheduled_at = condition.Time("lastTransitionTime");
    if (condition_status == "False") {
      out->failed_attempt_hash =
          FailedAttemptHash(condition.Text("reason"), condition.Text("message"));
    }
  });
  for (const std::string_view list : {"initContainerStatuses", "containerStatuses"}) {
    if (!kept.container_status && !kept.run_summary) break;
    status.Each(list, [&](Fields& container) {
      if (kept.run_summary) ReadRunSummary(container, &out->run_summary);
      if (!kept.container_status) return;
      const std::string id = container.Text("containerID");
      if (!id.empty()) out->container_ids.insert_or_assign(container.Text("name"), id);
      Fields state = container.Object("state");
      if (state.Find("terminated") != nullptr) out->ended_containers.insert(container.Text("name"));
    });
  }
  return fields.status();
}

Status FromJson(const Json& object, const KeptFields& kept, NodeObject* out) {
  Fields fields(&object);
  ReadMeta(fields, kept, &out->meta);
  Fields spec = fields.Object("spec");
  out->unschedulable = spec.Flag("unschedulable");
  spec.Each("taints", [&](Fields& taint) {
    out->taints.push_back({taint.Text("key"), taint.Text("value"), taint.Text("effect")});
  });
  Fields status = fields.Object("status");
  status.Map("capacity", kept.resource, &out->capacity);
  status.Map("allocatable", kept.resource, &out->allocatable);
  status.Each("conditions", [&](Fields& condition) {
    if (condition.Text("type") == "Ready") out->ready = condition.Text("status") == "True";
  });
  status.Each("addresses", [&](Fields& address) {
    if (address.Text("type") != "InternalIP" || !out->internal_ip.empty()) return;
    out->internal_ip = address.Text("address");
  });
  return fields.status();
}

Status FromJson(const Json& object, const KeptFields& kept, ConfigMapObject* out) {
  Fields fields(&object);
  ReadMeta(fields, kept, &out->meta);
  fields.Map("data", {}, &out->data);
  return fields.status();
}

Status FromJson(const Json& object, const KeptFields& kept, PodDisruptionBudgetObject* out) {
  Fields fields(&object);
  ReadMeta(fields, kept, &out->meta);
  Fields spec = fields.Object("spec");
  if (spec.Find("selector") != nullptr) {
    Fields selector = spec.Object("selector");
    std::vector<LabelSelector::Requirement>& all = out->selector.emplace().requirements;
    StringMap labels;
    selector.Map("matchLabels", {}, &labels);
    for (const auto& [key, value] : labels) {
      all.push_back({key, LabelSelector::Operator::kIn, {value}});
    }
    ReadRequirements(selector, "matchExpressions", &all);
  }
  Fields status = fields.Object("status");
  out->disruptions_allowed = static_cast<int32_t>(status.Int("disruptionsAllowed"));
  StringMap disrupted_pods;
  status.Map("disruptedPods", {}, &disrupted_pods);
  for (const auto& [name, when] : disrupted_pods) out->disrupted_pods.insert(name);
  return fields.status();
}

Status FromJson(const Json& object, const KeptFields& kept, LeaseObject* out) {
  Fields fields(&object);
  ReadMeta(fields, kept, &out->meta);
  Fields spec = fields.Object("spec");
  out->holder = spec.Text("holderIdentity");
  out->duration = std::chrono::seconds(static_cast<int32_t>(spec.Int("leaseDurationSeconds")));
  out->acquire_time = spec.Time("acquireTime");
  out->renew_time = spec.Time("renewTime");
  out->transitions = static_cast<int32_t>(spec.Int("leaseTransitions"));
  return fields.status();
}

}  // namespace tessera::kube
