// SPDX-License-Identifier: Apache-2.0
// Keeps the sessions of users who logged in with OpenID Connect: exchanges the refresh token for a
// new ID token before the last one expires. Without a refresh token, or if the issuer rejects it,
// the session ends with its ID token. Refresh tokens are kept in memory only, at most an hour
// longer than their session.
//
// Threads: the runner's. `login` must outlive the refresher.
#pragma once

#include <memory>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/console/oidc.h"
#include "src/console/sessions.h"

namespace tessera::console {

class TokenRefresher {
 public:
  TokenRefresher(TaskRunner& runner, OidcLogin& login) : runner_(runner), login_(login) {}

  // Follows the session, which began with these tokens, until it ends.
  void Follow(const std::shared_ptr<WebSession>& session, OidcTokens tokens);

  // How long to wait before the refresh of tokens that expire at `expires`: nine tenths of the time
  // that is left, but at least a second and at most an hour.
  static Duration WaitBefore(WallTime expires, WallTime now);

 private:
  void Wait(std::weak_ptr<WebSession> session, OidcTokens tokens);
  void Refresh(const std::weak_ptr<WebSession>& session, const OidcTokens& tokens);
  void OnTokens(const std::weak_ptr<WebSession>& session, const OidcTokens& last,
                Result<OidcTokens> fresh);

  TaskRunner& runner_;
  OidcLogin& login_;
  WeakPtrFactory<TokenRefresher> weak_{this};
};

}  // namespace tessera::console
