// SPDX-License-Identifier: Apache-2.0
#include "src/operator/engine_cleanup.h"

#include <algorithm>
#include <utility>

#include "api/names.h"

namespace tessera::operators {

EngineCleanup::EngineCleanup(ClusterAccess access, kube::TypeCatalog& types,
                             std::vector<Json> daemonsets, Duration timeout, OnDone on_done)
    : access_(std::move(access)),
      on_done_(std::move(on_done)),
      set_(access_.client, types,
           {.label_selector = std::string(names::kPartOfSelector),
            .before_send = access_.before_send},
           access_.metrics, static_cast<ObjectSet::Delegate&>(*this)) {
  for (const Json& set : daemonsets) {
    const Json& metadata = *set.Find("metadata");
    to_delete_.push_back({kube::kDaemonSets, metadata.StringAt("name").value(),
                          metadata.StringAt("namespace").value(), ""});
  }
  // The cleanup DaemonSets get no owner, so that the removal of the owner's objects does not delete
  // them.
  set_.SetWanted({{"cleanup", std::move(daemonsets)}}, {});
  access_.client.runner().PostDelayed(timeout, [this, weak = weak_.Get()] {
    if (!weak || ended_) return;
    End(Error(Code::kDeadlineExceeded, "{}", set_.Reports().front().message));
  });
}

EngineCleanup::~EngineCleanup() = default;

void EngineCleanup::OnObjectsChanged() {
  const std::vector<ComponentReport> reports = set_.Reports();
  const bool ready = std::ranges::all_of(reports, [](const ComponentReport& report) {
    return report.state == ComponentState::kReady;
  });
  if (ended_ || reports.empty() || !ready) return;
  End(Status::Ok());
}

void EngineCleanup::End(const Status& status) {
  ended_ = true;
  result_ = status;
  // Without this call the ObjectSet would restore the deleted objects.
  set_.SetWanted({}, {});
  DeleteNext();
}

void EngineCleanup::DeleteNext() {
  const Status may_write = access_.before_send ? access_.before_send() : Status::Ok();
  if (to_delete_.empty() || !may_write.ok()) {
    access_.client.runner().Post([this, weak = weak_.Get()] {
      if (weak) on_done_(result_);
    });
    return;
  }
  const kube::ObjectRef ref = to_delete_.back();
  to_delete_.pop_back();
  deletion_ = access_.client.Delete(ref, {.propagation = kube::Propagation::kBackground},
                                    [this, ref](const Result<Json>& answer) {
                                      const bool gone =
                                          answer.ok() || answer.status().code() == Code::kNotFound;
                                      if (!gone && result_.ok())
                                        result_ = answer.status().Annotate("DaemonSet " + ref.name);
                                      DeleteNext();
                                    });
}

}  // namespace tessera::operators
