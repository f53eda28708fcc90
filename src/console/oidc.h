// SPDX-License-Identifier: Apache-2.0
// Login with OpenID Connect: the authorization code flow with PKCE (RFC 7636, S256). The console
// sends the browser to the issuer, receives a code, and exchanges the code for an ID token. With
// this token it begins the same session as with a pasted token (sessions.h).
//
// The console checks the issuer, audience, expiry and nonce of the ID token. It does not check the
// signature: the API server does, when it authenticates the token at the login. A token that the
// API server rejects begins no session.
//
// All secrets of one login follow from one random text, which only the browser keeps: in a cookie,
// for kLongestLogin. So the console stores nothing about logins that no person completes. Messages
// contain neither tokens nor codes.
//
// Threads: OidcLogin the runner's; all else is pure.
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
  std::string redirect_url;        // of this console, with path kCallbackPath
  net::PemSource authorities;      // for the issuer's certificate
};

constexpr std::string_view kOidcLoginPath = "/oidc/login";
constexpr std::string_view kOidcCallbackPath = "/oidc/callback";
constexpr std::chrono::minutes kLongestLogin = std::chrono::minutes(10);

// INVALID_ARGUMENT names the flag. Does not check the files.
Status CheckOidcOptions(const OidcOptions& options);

// The secrets of one login. `secret`: the value of the cookie.
struct LoginSecrets {
  std::string state;     // returns with the code
  std::string nonce;     // returns in the ID token
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
// Parses /.well-known/openid-configuration. INVALID_ARGUMENT: not the document of this issuer, or
// an endpoint without HTTPS.
Result<OidcProvider> ParseProvider(std::string_view document, const std::string& issuer);

// Where the browser logs in.
std::string AuthorizationUrl(const OidcProvider& provider, const OidcOptions& options,
                             const LoginSecrets& secrets);
// `client_secret` "": a public client.
net::Request TokenRequest(const OidcProvider& provider, const OidcOptions& options,
                          std::string_view client_secret, std::string_view code,
                          std::string_view verifier);
// The reason of an issuer for an error, for people; cut to 200 bytes.
std::string IssuerReason(std::string_view error, std::string_view description);
// The id_token of the token endpoint's answer. UNAUTHENTICATED with the issuer's reason.
Result<std::string> IdTokenOf(const net::Response& answer);
// UNAUTHENTICATED if iss, aud, exp or nonce do not belong to this login. Does not check the
// signature.
Status CheckIdToken(std::string_view token, const OidcOptions& options, std::string_view nonce,
                    WallTime now);

class OidcLogin {
 public:
  static constexpr size_t kMostFetches = 64;
  // Calls back once, later or at once, and not after this object is destroyed. UNAVAILABLE: the
  // issuer does not answer.
  using OnText = std::function<void(Result<std::string>)>;

  OidcLogin(net::IoThread& io, TaskRunner& runner, OidcOptions options);

  const OidcOptions& options() const { return options_; }
  // Host of the issuer, for people.
  std::string issuer_host() const;
  // Where the browser logs in.
  void Begin(std::string_view secret, OnText on_url);
  // The ID token for a code. REQUIRES: the caller has compared the state.
  void Complete(const std::string& code, std::string_view secret, OnText on_token);

 private:
  static constexpr Duration kFresh = std::chrono::minutes(10);
  struct Fetch {
    std::unique_ptr<net::HttpClient> client;
    net::HttpCall call;
  };
  using OnResponse = std::function<void(Result<net::Response>)>;

  void WithProvider(std::function<void(const Result<OidcProvider>&)> then);
  void Exchange(const OidcProvider& provider, const std::string& code, const LoginSecrets& secrets,
                const OnText& on_token);
  void Send(const std::string& url, net::Request request, OnResponse then);

  net::IoThread& io_;
  TaskRunner& runner_;
  const OidcOptions options_;
  OidcProvider provider_;
  MonotonicTime provider_ends_{};  // when the provider's document is read again
  uint64_t last_ = 0;
  std::map<uint64_t, Fetch> fetches_;
  WeakPtrFactory<OidcLogin> weak_{this};
};

}  // namespace tessera::console
