// SPDX-License-Identifier: Apache-2.0
// The session of a watching command (-w). If the API server rejects the credentials, the
// configuration is reloaded, so that a login in another terminal takes effect. A new session
// replaces the old session once it is synced. Until then StaleLine reports that the old session is
// stale.
//
// Threads, callbacks, ownership: as Session.
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

  // REQUIRES: on_ready got OK. Changes with the credentials.
  Session& session() { return *session_; }
  // "stale since 10:42:13: …", or "" while the session is current.
  std::string StaleLine() const;
  // StaleLine for a log: once per outage, again when the server starts to reject the credentials,
  // then "follows the cluster again". "" if nothing is new.
  std::string StaleNotice();

  // Interval of configuration reloads while the credentials are rejected.
  static constexpr Duration kReload = std::chrono::seconds(2);

 private:
  void CheckLater();
  void Check();
  void OnNextReady(const Status& status);

  net::IoThread& io_;
  TaskRunner& runner_;
  SessionOptions options_;
  const LoadConfig load_config_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Session> next_;  // with the latest configuration
  std::optional<bool> noticed_;    // set in an outage: whether its notice was for credentials
  WeakPtrFactory<Follower> weak_{this};
};

}  // namespace tessera::cli
