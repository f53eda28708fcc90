// SPDX-License-Identifier: Apache-2.0
#include "src/console/token_refresher.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"

namespace tessera::console {
namespace {

// A token with a longer lifetime is refreshed after this time, too.
constexpr Duration kLongestWait = std::chrono::hours(1);

}  // namespace

Duration TokenRefresher::WaitBefore(WallTime expires, WallTime now) {
  // Divides first: nine times a far expiry would overflow.
  return std::clamp<Duration>((expires - now) / 10 * 9, std::chrono::seconds(1), kLongestWait);
}

void TokenRefresher::Follow(const std::shared_ptr<WebSession>& session, OidcTokens tokens) {
  if (!tokens.refresh_token.empty()) Wait(session, std::move(tokens));
}

void TokenRefresher::Wait(std::weak_ptr<WebSession> session, OidcTokens tokens) {
  const Duration wait = WaitBefore(tokens.expires, runner_.clock().WallNow());
  runner_.PostDelayed(
      wait, [this, weak = weak_.Get(), session = std::move(session), tokens = std::move(tokens)] {
        if (weak) Refresh(session, tokens);
      });
}

void TokenRefresher::Refresh(const std::weak_ptr<WebSession>& session, const OidcTokens& tokens) {
  const std::shared_ptr<WebSession> held = session.lock();
  if (held == nullptr || held->ended) return;
  login_.Refresh(tokens, [this, weak = weak_.Get(), session, tokens](Result<OidcTokens> fresh) {
    if (weak) OnTokens(session, tokens, std::move(fresh));
  });
}

void TokenRefresher::OnTokens(const std::weak_ptr<WebSession>& session, const OidcTokens& last,
                              Result<OidcTokens> fresh) {
  const std::shared_ptr<WebSession> held = session.lock();
  if (held == nullptr || held->ended) return;
  if (fresh.ok()) {
    held->client->SetToken(fresh->id_token);
    return Wait(session, *std::move(fresh));
  }
  const bool rejected = fresh.status().code() == Code::kUnauthenticated;
  const bool expired = last.expires <= runner_.clock().WallNow();
  Log(Severity::kWarning,
      rejected || expired ? "a session ends with its ID token"
                          : "cannot refresh the tokens of a session, retrying",
      {{"user", held->user}, {"error", fresh.status().message()}});
  if (!rejected && !expired) Wait(session, last);
}

}  // namespace tessera::console
