// SPDX-License-Identifier: Apache-2.0
#include "src/operator/controller.h"

#include <utility>

#include "api/names.h"
#include "src/operator/reconciler.h"
#include "src/operator/status_reporter.h"

namespace tessera::operators {
namespace {

// Keys of the queue.
constexpr std::string_view kResourceKey = "resource";
constexpr std::string_view kStatusKey = "status";

}  // namespace

struct Controller::Core : Reconciler::Delegate {
  Core(ClusterAccess a, Rendering r, ControllerOptions o)
      : access(std::move(a)),
        rendering(std::move(r)),
        options(std::move(o)),
        resource_handler(access.metrics, "tesseras", [this] { OnReconcileDue(Duration::zero()); }),
        resources(access.client, kube::ListQuery{.type = kube::kTesseras}, kube::KeptFields{},
                  resource_handler),
        reconciler(access, rendering, options, *this),
        reporter(access, options.ns, reconciler, *this) {}

  void OnReportChanged() override { queue.AddAfter(std::string(kStatusKey), options.status_delay); }

  void OnReconcileDue(Duration wait) override {
    const std::string key(kResourceKey);
    wait == Duration::zero() ? queue.Add(key) : queue.AddAfter(key, wait);
  }

  void OnEvent(kube::EventKind kind, std::string_view reason, const std::string& message) override {
    const kube::JsonObject* resource = Resource();
    if (resource == nullptr) return;
    access.events.Record({.api_version = std::string(names::kCustomResourceApiVersion),
                          .kind = std::string(names::kCustomResourceKind),
                          .name = resource->meta.name,
                          .uid = resource->meta.uid},
                         kind, reason, message);
  }

  const kube::JsonObject* Resource() const {
    return resources.Find(std::string(names::kCustomResourceName));
  }

  void Work(const std::string& key, kube::KeyedQueue::Done done) {
    key == kStatusKey ? WriteStatus(std::move(done)) : Reconcile(std::move(done));
  }

  void Reconcile(kube::KeyedQueue::Done done) {
    if (!resources.synced() || !reconciler.synced()) return done(Status::Ok());
    if (Resource() == nullptr) reporter.Forget();
    reconciler.Reconcile(Resource(), reporter.agents_run(), std::move(done));
  }

  void WriteStatus(kube::KeyedQueue::Done done) {
    const Clock& clock = access.client.runner().clock();
    const MonotonicTime began = clock.Now();
    if (Resource() == nullptr || !reporter.ready()) return done(Status::Ok());
    if (reconciler.is_applying()) {
      OnReportChanged();
      return done(Status::Ok());
    }
    reporter.Write(*Resource(), std::move(done));
    access.metrics.reconcile.Observe(clock.Now() - began);
  }

  const ClusterAccess access;
  const Rendering rendering;
  const ControllerOptions options;
  kube::KeyedQueue queue{
      access.client.runner(),
      {.max_running = 2, .longest_wait = std::chrono::seconds(30)},
      [this](const std::string& key, kube::KeyedQueue::Done done) { Work(key, std::move(done)); }};
  ChangeHandler<kube::JsonObject> resource_handler;
  kube::Informer<kube::JsonObject> resources;
  Reconciler reconciler;
  StatusReporter reporter;
};

Controller::Controller(ClusterAccess access, Rendering rendering, ControllerOptions options)
    : core_(std::make_unique<Core>(std::move(access), std::move(rendering), std::move(options))) {}

Controller::~Controller() = default;

bool Controller::synced() const {
  return core_->resources.synced() && core_->reconciler.synced() && core_->reporter.synced();
}

std::optional<StatusInput> Controller::status() const {
  return core_->Resource() == nullptr ? std::nullopt : core_->reporter.last_status();
}

void Controller::ReconcileForTest() {
  core_->OnReconcileDue(Duration::zero());
  core_->queue.Add(std::string(kStatusKey));
}

}  // namespace tessera::operators
