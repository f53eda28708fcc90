// SPDX-License-Identifier: Apache-2.0
// The operator's handler of changes in a watched collection. Included only in src/operator.
// Threads: the client's runner.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "src/base/log.h"
#include "src/kube/informer.h"
#include "src/operator/metrics.h"

namespace tessera::operators {

// Calls one function for each change of a collection, and keeps the error of its watch.
template <typename T>
class ChangeHandler : public kube::Informer<T>::Handler {
 public:
  using OnChange = std::function<void()>;
  ChangeHandler(OperatorMetrics& metrics, std::string collection, OnChange on_change)
      : metrics_(metrics), collection_(std::move(collection)), on_change_(std::move(on_change)) {}
  void OnAdded(const T&) override { on_change_(); }
  void OnChanged(const T& before, const T& now) override {
    if constexpr (requires { before == now; }) {
      T unchanged = now;
      unchanged.meta.resource_version = before.meta.resource_version;
      if (unchanged == before) return;  // no kept field changed, as in a node's heartbeat
    }
    on_change_();
  }
  void OnRemoved(const T&) override { on_change_(); }
  void OnSynced() override { on_change_(); }
  void OnError(const Status& status, Duration) override {
    metrics_.watch_errors.Add(collection_);
    const bool is_new = error.code() != status.code();
    error = status;
    if (is_new) {
      Log(Severity::kWarning, "cannot watch, retrying",
          {{"collection", collection_}, {"error", status.ToString()}});
      on_change_();
    }
  }
  void OnRecovered() override {
    error = Status::Ok();
    on_change_();
  }

  Status error;

 private:
  OperatorMetrics& metrics_;
  const std::string collection_;
  const OnChange on_change_;
};

}  // namespace tessera::operators
