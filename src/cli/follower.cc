// SPDX-License-Identifier: Apache-2.0
#include "src/cli/follower.h"

#include <utility>

#include "src/cli/text.h"

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
  runner_.PostDelayed(kReload, [this, weak = weak_.Get()] {
    if (!weak) return;
    Check();
    CheckLater();
  });
}

void Follower::Check() {
  const auto trouble = session_->trouble();
  if (next_ || !trouble || trouble->status.code() != Code::kUnauthenticated) return;
  Result<kube::Config> config = load_config_();
  if (!config.ok()) return;  // it may be half written
  options_.config = *std::move(config);
  next_ = std::make_unique<Session>(io_, runner_, options_,
                                    [this](const Status& status) { OnNextReady(status); });
}

void Follower::OnNextReady(const Status& status) {
  if (status.ok()) session_ = std::move(next_);
  next_.reset();
}

std::string Follower::StaleLine() const {
  const auto trouble = session_->trouble();
  if (!trouble) return "";
  return Printable(
      fmt::format("stale since {}: {}", Rfc3339(trouble->since), trouble->status.message()));
}

std::string Follower::StaleNotice() {
  const auto trouble = session_->trouble();
  std::optional<bool> rejected;
  if (trouble) rejected = trouble->status.code() == Code::kUnauthenticated;
  if (std::exchange(noticed_, rejected) == rejected) return "";
  return trouble ? StaleLine() : "follows the cluster again";
}

}  // namespace tessera::cli
