// SPDX-License-Identifier: Apache-2.0
#include "src/agent/kubelet/registrar.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

namespace tessera::agent {

Registrar::Registrar(TaskRunner* runner, KubeletRegistry* kubelet, PluginEndpoint* endpoint,
                     Registration registration, KubeletMetrics* metrics,
                     std::function<void()> on_change)
    : runner_(runner),
      kubelet_(kubelet),
      endpoint_(endpoint),
      registration_(std::move(registration)),
      metrics_(metrics),
      on_change_(std::move(on_change)) {}

void Registrar::Start() {
  started_ = true;
  EnsureListening();
  TryRegister();
}

void Registrar::OnKubeletSocketAppeared() {
  if (!started_) return;
  const std::string identity = kubelet_->SocketIdentity();
  // The event may come after the registrar has found the socket. A second registration would make
  // the kubelet drop the stream that it has just opened.
  if (identity.empty() || (identity == tried_kubelet_ && (accepted_ || in_flight_))) return;
  if (!known_kubelet_.empty() && identity != tried_kubelet_) {
    metrics_->kubelet_restarts.Add();
    Log(Severity::kInfo, "the kubelet restarted", {{"resource", registration_.resource}});
  }
  pause_ = kFirstPause;
  starting_until_ = runner_->clock().Now() + kStartupTime;
  // An attempt with the earlier kubelet ends here.
  in_flight_ = false;
  TryRegister();
}

void Registrar::OnPluginSocketVanished() {
  if (started_) EnsureListening();
}

void Registrar::OnRescan() {
  if (!started_) return;
  EnsureListening();
  OnKubeletSocketAppeared();
}

void Registrar::EnsureListening() {
  if (endpoint_->SocketPresent()) return;
  const Status status = endpoint_->Listen();
  if (status.ok()) {
    if (listened_) metrics_->socket_repairs.Add();
    listened_ = true;
    listen_error_.clear();
    return;
  }
  // The directory is missing or not writable. A registration would name a socket that does not
  // exist.
  if (status.message() != listen_error_) {
    Log(Severity::kError, "cannot listen for the kubelet, retrying",
        {{"endpoint", registration_.endpoint}, {"error", status.ToString()}});
  }
  listen_error_ = status.message();
  if (std::exchange(listen_retry_scheduled_, true)) return;
  runner_->PostDelayed(kLongestPause, [this, weak = weak_.Get()] {
    if (!weak) return;
    listen_retry_scheduled_ = false;
    EnsureListening();
  });
}

void Registrar::TryRegister() {
  if (in_flight_) return;
  ++attempt_;
  accepted_ = false;
  tried_kubelet_ = kubelet_->SocketIdentity();
  UpdateRegistered();
  if (tried_kubelet_.empty()) return;  // the socket's event starts the next attempt
  if (!endpoint_->SocketPresent()) return ScheduleRetry(Code::kNotFound);
  // A stream that is still open belongs to an earlier kubelet.
  if (endpoint_->open_streams() > 0) endpoint_->CloseStreams();
  in_flight_ = true;
  stream_ended_in_flight_ = false;
  kubelet_->Register(registration_, [attempt = attempt_, weak = weak_.Get()](const Status& status) {
    if (weak && weak->attempt_ == attempt) weak->OnRegistered(status);
  });
}

void Registrar::OnRegistered(const Status& status) {
  in_flight_ = false;
  // A refused connection is not counted, because a starting kubelet has its socket before it
  // listens.
  if (status.code() != Code::kUnavailable) metrics_->registrations.Add(InfoOf(status.code()).name);
  if (!status.ok()) {
    if (status.code() != Code::kUnavailable || pause_ >= kLongestPause) {
      Log(Severity::kWarning, "the kubelet did not register the plugin, retrying",
          {{"resource", registration_.resource}, {"error", status.ToString()}});
    }
    return ScheduleRetry(status.code());
  }
  accepted_ = true;
  known_kubelet_ = tried_kubelet_;
  Log(Severity::kInfo, "registered with the kubelet",
      {{"resource", registration_.resource}, {"endpoint", registration_.endpoint}});
  UpdateRegistered();
  // The kubelet may have died between its answer and its stream.
  PostForAttempt(stream_ended_in_flight_ ? kShortStreamWait : kStreamWait, [this] {
    if (endpoint_->open_streams() == 0) TryRegister();
  });
}

void Registrar::ScheduleRetry(Code reason) {
  const Duration pause = pause_;
  const bool starting = reason == Code::kUnavailable && runner_->clock().Now() < starting_until_;
  if (!starting) pause_ = std::min(pause_ * 2, Duration(kLongestPause));
  PostForAttempt(pause, [this] { TryRegister(); });
}

void Registrar::OnStreamOpened() {
  UpdateRegistered();
  PostForAttempt(kStableAge, [this] {
    if (endpoint_->open_streams() > 0) pause_ = kFirstPause;
  });
}

void Registrar::OnStreamClosed() {
  UpdateRegistered();
  if (in_flight_) stream_ended_in_flight_ = true;
  if (!started_ || in_flight_ || !accepted_ || endpoint_->open_streams() > 0) return;
  Log(Severity::kWarning, "the kubelet ended its device stream, registering again",
      {{"resource", registration_.resource}});
  accepted_ = false;
  ++attempt_;
  ScheduleRetry(Code::kCancelled);
}

void Registrar::UpdateRegistered() {
  const bool now = accepted_ && endpoint_->open_streams() > 0;
  if (now == registered_) return;
  registered_ = now;
  if (on_change_) on_change_();
}

void Registrar::PostForAttempt(Duration delay, std::function<void()> task) {
  runner_->PostDelayed(delay, [weak = weak_.Get(), attempt = attempt_, task = std::move(task)] {
    if (weak && weak->attempt_ == attempt) task();
  });
}

}  // namespace tessera::agent
