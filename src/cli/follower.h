// SPDX-License-Identifier: Apache-2.0
// The session of a watching command (-w). If the API server rejects the credentials, the
// configuration is reloaded, so that a login in another terminal takes effect. A new session
// replaces the old session once it is synced. Until then StaleLine reports that the old session is
// stale.
//
// Threads and ownership: as for Session.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/base/weak_ptr.h"
#include "src/cli/session.h"

namespace tessera::cli {

class Follower {
 public:
  using LoadConfig = std::function<Result<kube::Config>()>;

  // Calls `on_ready` once, for the first session, which uses `options.config`.
  Follower(net::IoThread& io, TaskRunner& runner, SessionOptions options, LoadConfig load_config,
           Session::OnReady on_ready);

  // REQUIRES: on_ready was called with OK. Valid until the next task of the runner, because new
  // credentials replace the session.
  Session& session() { return *session_; }
  // "stale since 10:42:13: …", or "" while the session is current.
  std::string StaleLine() const;
  // For a log; call it repeatedly. Returns StaleLine when an outage begins, and again when the
  // server begins or ceases to reject the credentials during the outage. Returns "follows the
  // cluster again" when the outage ends, and otherwise "".
  std::string StaleNotice();

  // Interval of configuration reloads while the credentials are rejected.
  static constexpr Duration kReloadInterval = std::chrono::seconds(2);

 private:
  void CheckLater();
  void Check();
  void OnNextReady(const Status& status);

  net::IoThread& io_;
  TaskRunner& runner_;
  SessionOptions options_;
  const LoadConfig load_config_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Session> next_session_;  // with the reloaded configuration; not synced yet
  // At the last StaleNotice: whether the server rejected the credentials; nullopt: no outage.
  std::optional<bool> last_notice_rejected_;
  WeakPtrFactory<Follower> weak_{this};
};

}  // namespace tessera::cli
