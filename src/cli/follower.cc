// SPDX-License-Identifier: Apache-2.0
#include "src/cli/follower.h"

#include <utility>

#include "src/cli/output/text.h"

namespace tessera::cli {

Follower::Follower(net::IoThread& io, TaskRunner& runner, SessionOptions options,
                   LoadConfig load_config, Session::OnReady on_ready)
    : io_(io),
      runner_(runner),
      options_(std::move(options)),
      load_config_(std::move(load_config)),
      session_(std::make_unique<Session>(io, runner, options_, std::move(on_ready))) {
  CheckLater();
}

void Follower::CheckLater() {
  runner_.PostDelayed(kReloadInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    Check();
    CheckLater();
  });
}

void Follower::Check() {
  const auto outage = session_->outage();
  if (next_session_ || !outage || outage->status.code() != Code::kUnauthenticated) return;
  Result<kube::Config> config = load_config_();
  if (!config.ok()) return;  // the file may be half written
  options_.config = *std::move(config);
  next_session_ = std::make_unique<Session>(io_, runner_, options_,
                                            [this](const Status& status) { OnNextReady(status); });
}

void Follower::OnNextReady(const Status& status) {
  if (status.ok()) session_ = std::move(next_session_);
  next_session_.reset();
}

std::string Follower::StaleLine() const {
  const auto outage = session_->outage();
  if (!outage) return "";
  return Printable(
      fmt::format("stale since {}: {}", Rfc3339(outage->since), outage->status.message()));
}

std::string Follower::StaleNotice() {
  const auto outage = session_->outage();
  std::optional<bool> rejected;
  if (outage) rejected = outage->status.code() == Code::kUnauthenticated;
  if (std::exchange(last_notice_rejected_, rejected) == rejected) return "";
  return outage ? StaleLine() : "follows the cluster again";
}

}  // namespace tessera::cli
