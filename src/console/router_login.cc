// SPDX-License-Identifier: Apache-2.0
// Login with OpenID Connect (oidc.h).
#include "src/base/log.h"
#include "src/console/oidc.h"
#include "src/console/replies.h"
#include "src/console/router.h"

namespace tessera::console {
namespace {

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// The browser has left the page, so the error needs a page of its own.
net::Response LoginErrorPage(const Status& status, std::string_view console_url) {
  Log(Severity::kWarning, fmt::format("OpenID Connect login failed: {}", status.message()));
  return {InfoOf(status.code()).http_status,
          {{"Content-Type", "text/html; charset=utf-8"}, {"Cache-Control", "no-store"}},
          fmt::format("<!doctype html><html lang=\"en\"><title>Login failed</title>"
                      "<h1>Login failed</h1><p>{}</p><p><a href=\"{}\">Log in again</a></p></html>",
                      EscapeHtml(status.message()), EscapeHtml(console_url))};
}

// The code in the query with which the issuer sends the browser back to the console.
Result<std::string> CodeOf(const net::Request& request, const OidcLogin& oidc,
                           std::string_view secret) {
  const std::string state = request.Query("state").value_or("");
  if (secret.empty() || !SameSecret(state, SecretsOf(secret).state)) {
    return Error(Code::kUnauthenticated,
                 "this browser did not begin this login in the last {} minutes: log in again",
                 kLongestLogin.count());
  }
  if (const auto error = request.Query("error")) {
    return Error(Code::kUnauthenticated,
                 "{} refused the login: {}: ask its administrator for access to client {}",
                 oidc.issuer_host(),
                 IssuerReason(*error, request.Query("error_description").value_or("")),
                 oidc.options().client_id);
  }
  const std::string code = request.Query("code").value_or("");
  if (!code.empty()) return code;
  return Error(Code::kUnauthenticated, "{} sent no code: log in again", oidc.issuer_host());
}

}  // namespace

std::string ConsoleRouter::LoginCookieFor(std::string_view value) const {
  // The browser comes to the callback from the issuer's site, so SameSite=Strict would withhold the
  // cookie.
  return fmt::format("{}={}; Path=/; HttpOnly; SameSite=Lax{}; Max-Age={}", login_cookie_, value,
                     options_.secure_cookie ? "; Secure" : "",
                     value.empty() ? 0 : std::chrono::seconds(kLongestLogin).count());
}

void ConsoleRouter::HandleOidc(const net::Request& request, const Reply& reply) {
  if (oidc_ == nullptr) return reply(net::TextResponse(404, "no such page\n"));
  if (request.method != "GET") return reply(net::TextResponse(405, "only GET\n"));
  const std::string& callback = oidc_->options().redirect_url;
  const std::string home = callback.substr(0, callback.size() - kOidcCallbackPath.size() + 1);
  const auto fail = [reply, home, clear = LoginCookieFor("")](const Status& status) {
    net::Response response = LoginErrorPage(status, home);
    response.headers.Add("Set-Cookie", clear);
    reply(std::move(response));
  };
  if (!login_limit_.Allow(request.peer, runner_.clock().Now())) {
    return fail(Error(Code::kResourceExhausted, "too many logins: wait a second"));
  }
  request.path() == kOidcLoginPath ? BeginOidcLogin(reply, fail)
                                   : CompleteOidcLogin(request, reply, fail);
}

void ConsoleRouter::BeginOidcLogin(const Reply& reply, const OnFailure& fail) {
  const std::string secret = RandomHex();
  oidc_->Begin(secret, [this, secret, reply, fail](const Result<std::string>& url) {
    if (!url.ok()) return fail(url.status());
    net::Response response{303, {{"Location", *url}, {"Cache-Control", "no-store"}}, ""};
    response.headers.Add("Set-Cookie", LoginCookieFor(secret));
    reply(std::move(response));
  });
}

void ConsoleRouter::CompleteOidcLogin(const net::Request& request, const Reply& reply,
                                      const OnFailure& fail) {
  const std::string secret(CookieOf(request, login_cookie_));
  const Result<std::string> code = CodeOf(request, *oidc_, secret);
  if (!code.ok()) return fail(code.status());
  oidc_->Complete(*code, secret, [this, reply, fail](const Result<OidcTokens>& tokens) {
    if (!tokens.ok()) return fail(tokens.status());
    if (tokens->id_token.size() > kMaxTokenBytes) {
      return fail(Error(Code::kUnauthenticated,
                        "the ID token has {} bytes, at most {} are accepted: let the issuer put "
                        "fewer groups into it",
                        tokens->id_token.size(), kMaxTokenBytes));
    }
    sessions_.LogIn(
        tokens->id_token, [this, reply, fail, tokens = *tokens](const Result<SessionPtr>& session) {
          if (session.status().code() == Code::kUnauthenticated) {
            return fail(Error(
                Code::kUnauthenticated,
                "the API server rejects the ID token: {}: give the API server the same "
                "issuer and client ID (--oidc-issuer-url={} --oidc-client-id={})",
                session.status().message(), oidc_->options().issuer, oidc_->options().client_id));
          }
          if (!session.ok()) return fail(session.status());
          Log(Severity::kInfo, "login", {{"user", (*session)->user}});
          refresher_->Follow(*session, tokens);
          net::Response response{303, {{"Location", "/"}, {"Cache-Control", "no-store"}}, ""};
          response.headers.Add("Set-Cookie", CookieFor((*session)->id));
          response.headers.Add("Set-Cookie", LoginCookieFor(""));
          reply(std::move(response));
        });
  });
}

}  // namespace tessera::console
