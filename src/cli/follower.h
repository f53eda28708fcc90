// SPDX-License-Identifier: Apache-2.0
// The session of a command that goes on (-w). Where the API server rejects the credentials, the
// configuration is read anew, so that a login in another terminal counts, and another session takes
// over once it has everything. Until then the old one is shown, and StaleLine says that it is old.
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

  // `on_ready` is called once, for the first session, which has `options.config`.
  Follower(net::IoThread& io, TaskRunner& runner, SessionOptions options, LoadConfig load_config,
           Session::OnReady on_ready);

  // After OK. Another one after each change of credentials.
  Session& session() { return *session_; }
  // "" while what is shown is the cluster as it is: "stale since 10:42:13: …".
  std::string StaleLine() const;
  // StaleLine for a log: once per outage, again when the server begins to reject the credentials,
  // then "follows the cluster again". "" while there is nothing new.
  std::string StaleNotice();

  // How often the configuration is read while the credentials are rejected.
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
  std::unique_ptr<Session> next_;  // with the configuration that was read last
  std::optional<bool> noticed_;  // the outage in the last notice: whether credentials were rejected
  WeakPtrFactory<Follower> weak_{this};
};

}  // namespace tessera::cli
