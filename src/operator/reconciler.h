// SPDX-License-Identifier: Apache-2.0
// Carries out the spec of the resource Tessera: renders it, applies and restores the objects
// (object_set.h), installs and upgrades drivers (driver_controller.h), keeps agents off nodes of
// NVIDIA's operator, and cleans up when the resource is deleted (removal.h). Also applies the
// resource's CustomResourceDefinition. Included only in src/operator.
//
// Threads: the client's runner. The arguments must outlive the reconciler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/kube/client.h"
#include "src/kube/keyed_queue.h"
#include "src/kube/metadata_object.h"
#include "src/kube/type_catalog.h"
#include "src/operator/controller.h"
#include "src/operator/driver_controller.h"
#include "src/operator/object_set.h"
#include "src/operator/removal.h"

namespace tessera::operators {

// Polls whether NVIDIA's operator has a ClusterPolicy in the cluster. Does not watch, because the
// type ClusterPolicy is defined only in clusters with that operator. The client must outlive the
// reader.
class ClusterPolicyReader {
 public:
  // Calls `on_read` after each read.
  ClusterPolicyReader(kube::Client& client, Duration interval, std::function<void()> on_read);
  ClusterPolicyReader(const ClusterPolicyReader&) = delete;
  ClusterPolicyReader& operator=(const ClusterPolicyReader&) = delete;

  // Whether a read has succeeded.
  bool known() const { return known_; }
  // Name of the ClusterPolicy; "": the cluster has none.
  const std::string& name() const { return name_; }
  // The error of the last read. An error does not clear name(), because agents would then start
  // beside NVIDIA's device plugin, and both would grant the same GPUs.
  const Status& error() const { return error_; }

 private:
  void Read();

  kube::Client& client_;
  const Duration interval_;
  const std::function<void()> on_read_;
  bool known_ = false;
  std::string name_;
  Status error_;
  kube::Operation read_;
  WeakPtrFactory<ClusterPolicyReader> weak_{this};
};

class Reconciler : private ObjectSet::Delegate, private DriverController::Delegate {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Report() may have changed.
    virtual void OnReportChanged() = 0;
    // Reconcile must be called after `wait`.
    virtual void OnReconcileDue(Duration wait) = 0;
    // An Event about the resource.
    virtual void OnEvent(kube::EventKind kind, std::string_view reason,
                         const std::string& message) = 0;
  };

  Reconciler(const ClusterAccess& access, const Rendering& rendering,
             const ControllerOptions& options, Delegate& delegate);
  Reconciler(const Reconciler&) = delete;
  Reconciler& operator=(const Reconciler&) = delete;

  // Whether the cluster was checked for NVIDIA's operator. Reconcile REQUIRES it.
  bool synced() const { return policies_.known(); }
  // Compares the wanted with the actual state, and begins the missing changes. `resource`: the
  // current object; null if there is none. `agents_run`: pods of agents exist.
  void Reconcile(const kube::JsonObject* resource, bool agents_run, kube::KeyedQueue::Done done);

  // The generation of the resource that was reconciled last; 0 if none was.
  int64_t generation() const { return generation_; }
  // Whether the first applies after the start of a term, or after a change of the spec, have not
  // ended yet. They may still wait for the drivers. Most of these applies change nothing, so the
  // status is not written before they end.
  bool is_applying() const;
  bool is_removing() const { return removal_ != nullptr; }
  // The name of the ClusterPolicy whose nodes get no agent; "" if agents run on all nodes.
  const std::string& respected_policy() const;
  // Why a step of the removal fails after the resource was deleted.
  Status removal_error() const { return is_removing() ? removal_->error() : Status::Ok(); }
  // The status without the nodes.
  StatusInput Report() const;
  // Call when the API server has stored the status.
  void OnPublished(const StatusInput& status);

 private:
  std::unique_ptr<ObjectSet> NewSet(std::vector<Json> one_of_each_kind);
  void OnObjectsChanged() override;
  void OnRepair(const std::string& component, const std::string& description) override;
  void OnDriversChanged() override;

  void Render(const kube::JsonObject& resource, const kube::MetadataObject& meta);
  void SetSpecError(Status status);
  Status SetDriverPools(const Json& spec);
  std::vector<Json> DriverObjects() const;
  void AddDriverObjects(std::vector<components::Component>* components) const;
  void WriteFinalizers(const kube::MetadataObject& meta, kube::KeyedQueue::Done done);
  void Remove(kube::MetadataObject meta, const Json& spec, bool agents_run,
              kube::KeyedQueue::Done done);
  std::unique_ptr<Removal> MakeRemoval(const kube::ObjectMeta& meta, const Json& spec);
  MonotonicTime Now() const { return access_.client.runner().clock().Now(); }

  const ClusterAccess& access_;
  const Rendering& rendering_;
  const ControllerOptions& options_;
  Delegate& delegate_;
  kube::TypeCatalog types_;
  ClusterPolicyReader policies_;
  bool keeps_off_nvidia_nodes_ = false;  // no agents on nodes that NVIDIA's operator manages
  int64_t generation_ = 0;
  std::string rendered_input_;  // the input of the last rendering
  Status spec_error_;
  // From then on is_applying() is false, and the status names objects that are not applied yet.
  MonotonicTime apply_deadline_{};
  kube::Operation finalizer_write_;
  std::unique_ptr<ObjectSet> objects_;
  std::unique_ptr<ObjectSet> definition_;      // null: another program manages the definition
  std::unique_ptr<DriverController> drivers_;  // null: drivers are not managed
  std::string drivers_spec_text_;              // the spec of the last SetPools
  std::unique_ptr<Removal> removal_;           // null: the resource is not being deleted
};

}  // namespace tessera::operators
