// SPDX-License-Identifier: Apache-2.0
// Login with OpenID Connect: the authorization code flow with PKCE (RFC 7636, S256). The console
// sends the browser to the issuer, receives a code, and exchanges the code for an ID token. With
// this token it begins the same session as with a pasted token (sessions.h).
//
// The console checks the issuer, audience, expiry and nonce of the ID token. It does not check the
// signature: the API server does, when it authenticates the token at the login. A token that the
// API server rejects begins no session.
//
// If the issuer gives a refresh token, it is exchanged for a new ID token before the last one
// expires (token_refresher.h).
//
// All secrets of one login are derived from one random text. Only the browser keeps this text, in a
// cookie, for kLongestLogin. So the console stores nothing about a login that is never completed.
// Messages contain neither tokens nor codes.
//
// Threads: the runner's for OidcLogin; the other functions are pure.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/net/http_client.h"

namespace tessera::console {

struct OidcOptions {
  std::string issuer;  // as the API server's --oidc-issuer-url
  std::string client_id;
  std::string client_secret_file;  // read at each login; "": a public client
  std::string scopes = "openid";   // separated by spaces
  std::string redirect_url;        // of this console, with path kOidcCallbackPath
  net::PemSource authorities;      // for the issuer's certificate
};

constexpr std::string_view kOidcLoginPath = "/oidc/login";
constexpr std::string_view kOidcCallbackPath = "/oidc/callback";
constexpr std::chrono::minutes kLongestLogin = std::chrono::minutes(10);

// INVALID_ARGUMENT names the flag. Does not check the files.
Status CheckOidcOptions(const OidcOptions& options);

// The secrets of one login, derived from `secret`, the value of the cookie.
struct LoginSecrets {
  std::string state;     // the issuer returns it with the code
  std::string nonce;     // the issuer returns it in the ID token
  std::string verifier;  // proves to the issuer that the code was issued for this login
};
LoginSecrets SecretsOf(std::string_view secret);
// code_challenge of a code_verifier, method S256.
std::string CodeChallenge(std::string_view verifier);

struct OidcProvider {
  std::string authorization_endpoint;
  std::string token_endpoint;
  bool secret_in_body = false;  // client_secret_post; otherwise client_secret_basic
};
// Parses /.well-known/openid-configuration. INVALID_ARGUMENT: the document belongs to another
// issuer, or names an endpoint without HTTPS.
Result<OidcProvider> ParseProvider(std::string_view document, const std::string& issuer);

// The URL of the issuer's login page.
std::string AuthorizationUrl(const OidcProvider& provider, const OidcOptions& options,
                             const LoginSecrets& secrets);
// The request that exchanges a code for tokens. `client_secret`: "" for a public client.
net::Request TokenRequest(const OidcProvider& provider, const OidcOptions& options,
                          std::string_view client_secret, std::string_view code,
                          std::string_view verifier);
// The request that exchanges a refresh token for a new ID token.
net::Request RefreshRequest(const OidcProvider& provider, const OidcOptions& options,
                            std::string_view client_secret, std::string_view refresh_token);
// The issuer's error and its description as one text for users, cut to 200 bytes.
std::string IssuerReason(std::string_view error, std::string_view description);

// The tokens of one user, with the claims of the ID token.
struct OidcTokens {
  std::string id_token;
  std::string refresh_token;  // "": the issuer gives none
  std::string subject;        // the issuer's ID of the user
  std::string nonce;          // "": none
  WallTime expires{};         // of the ID token
};
// Parses the token endpoint's answer. UNAUTHENTICATED with the issuer's reason, or if the claims
// iss, aud or exp do not belong to this console. Does not check the signature.
Result<OidcTokens> TokensOf(const net::Response& answer, const OidcOptions& options, WallTime now);
// UNAUTHENTICATED if the tokens belong to another login than the one with this nonce.
Status CheckNonce(const OidcTokens& tokens, std::string_view nonce);
// The tokens after a refresh: `fresh`, completed from `last` with values that the issuer does not
// send again. UNAUTHENTICATED if `fresh` belongs to another user or login.
Result<OidcTokens> MergeRefreshed(const OidcTokens& last, OidcTokens fresh);

class OidcLogin {
 public:
  static constexpr size_t kMaxFetches = 64;
  // Calls back once, later or at once, and not after this object is destroyed. UNAVAILABLE: the
  // issuer does not answer.
  using OnText = std::function<void(Result<std::string>)>;
  using OnTokens = std::function<void(Result<OidcTokens>)>;

  OidcLogin(net::IoThread& io, TaskRunner& runner, OidcOptions options);

  const OidcOptions& options() const { return options_; }
  // Host of the issuer, to show to users.
  std::string issuer_host() const;
  // Calls back with the URL of the issuer's login page.
  void Begin(std::string_view secret, OnText on_url);
  // Exchanges a code for tokens. REQUIRES: the caller has compared the state.
  void Complete(const std::string& code, std::string_view secret, OnTokens on_tokens);
  // Gets new tokens for the same user. UNAUTHENTICATED: the issuer requires a new login.
  void Refresh(const OidcTokens& tokens, OnTokens on_tokens);

 private:
  static constexpr Duration kProviderLifetime = std::chrono::minutes(10);
  struct Fetch {
    std::unique_ptr<net::HttpClient> client;
    net::HttpCall call;
  };
  using OnResponse = std::function<void(Result<net::Response>)>;

  void WithProvider(std::function<void(const Result<OidcProvider>&)> then);
  using MakeRequest =
      std::function<net::Request(const OidcProvider& provider, std::string_view client_secret)>;
  // Sends a request to the token endpoint. `what`: a verb phrase for errors, "exchange the code".
  void RequestTokens(std::string_view what, MakeRequest make, OnTokens on_tokens);
  void Send(const std::string& url, net::Request request, OnResponse then);

  net::IoThread& io_;
  TaskRunner& runner_;
  const OidcOptions options_;
  OidcProvider provider_;
  MonotonicTime provider_expires_{};  // then its document is read again
  uint64_t last_number_ = 0;
  std::map<uint64_t, Fetch> fetches_;
  WeakPtrFactory<OidcLogin> weak_{this};
};

}  // namespace tessera::console
