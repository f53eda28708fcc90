// SPDX-License-Identifier: Apache-2.0
#include "src/console/oidc.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/console/replies.h"
#include "src/formats/base64.h"

namespace tessera::console {
namespace {

constexpr size_t kMaxAnswerBytes = 1 << 20;
constexpr size_t kMaxSecretBytes = 4 << 10;
constexpr size_t kMaxReasonBytes = 200;
constexpr double kMaxExpSeconds = 9e9;  // later times overflow a count of nanoseconds
constexpr net::Deadlines kIssuerDeadlines{.connect = std::chrono::seconds(5),
                                          .header = std::chrono::seconds(10),
                                          .body = std::chrono::seconds(10)};

// base64url without padding (RFC 4648, section 5).
std::string Base64Url(std::string_view bytes) {
  std::string text = Base64Encode(bytes);
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  text.resize(text.find_last_not_of('=') + 1);
  return text;
}

Result<std::string> Base64UrlDecode(std::string text) {
  std::ranges::replace(text, '-', '+');
  std::ranges::replace(text, '_', '/');
  text.append((4 - text.size() % 4) % 4, '=');
  return Base64Decode(text);
}

std::string Sha256(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  TESSERA_CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) ==
                1);
  return {digest.begin(), digest.begin() + size};
}

std::string Form(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    text += fmt::format("{}{}={}", text.empty() ? "" : "&", name, net::PercentEncode(value));
  }
  return text;
}

bool Contains(const Json* list, std::string_view text) {
  if (list == nullptr) return false;
  if (list->is_string()) return list->string_value() == text;
  return list->is_array() && std::ranges::any_of(list->items(), [&](const Json& item) {
           return item.is_string() && item.string_value() == text;
         });
}

bool IsHttps(std::string_view url) { return url.starts_with("https://"); }

Status CheckRedirectUrl(const std::string& text) {
  const Result<net::Url> url = net::ParseUrl(text);
  if (!url.ok()) return url.status();
  const std::string& host = url->address.host;
  const bool loopback = host == "127.0.0.1" || host == "::1" || host == "localhost";
  if (url->path != kOidcCallbackPath || !(url->tls || loopback)) {
    return Error(Code::kInvalidArgument, "invalid value \"{}\": want https://CONSOLE{}", text,
                 kOidcCallbackPath);
  }
  return Status::Ok();
}

Status CheckIssuer(const std::string& text) {
  const Result<net::Url> url = net::ParseUrl(text);
  if (!url.ok()) return url.status();
  if (url->tls) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "invalid value \"{}\": want an https URL, as the API server does", text);
}

Status Unauthenticated(std::string_view why) {
  return Error(Code::kUnauthenticated, "the ID token is not for this login: {}", why);
}

// A request to the token endpoint with the console's own credentials.
net::Request AuthenticatedRequest(const OidcProvider& provider, const OidcOptions& options,
                                  std::string_view client_secret, std::string form) {
  net::Request request{.method = "POST",
                       .headers = {{"Content-Type", "application/x-www-form-urlencoded"},
                                   {"Accept", "application/json"}},
                       .body = std::move(form)};
  if (!client_secret.empty() && !provider.secret_in_body) {
    const std::string credentials = fmt::format("{}:{}", net::PercentEncode(options.client_id),
                                                net::PercentEncode(client_secret));
    request.headers.Add("Authorization", "Basic " + Base64Encode(credentials));
    return request;
  }
  request.body += "&" + Form({{"client_id", options.client_id}});
  if (!client_secret.empty()) request.body += "&" + Form({{"client_secret", client_secret}});
  return request;
}

// Checks the claims iss, aud and exp of the ID token, and stores the claims in `tokens`.
Status ReadClaims(const OidcOptions& options, WallTime now, OidcTokens* tokens) {
  const auto parts = Split(tokens->id_token, '.');
  const Result<std::string> text =
      parts.size() == 3 ? Base64UrlDecode(std::string(parts[1])) : std::string();
  const Json claims = ParseJson(text.value_or("")).value_or({});
  if (!claims.is_object()) {
    return Unauthenticated("it is not a signed JWT: check that the issuer does not encrypt it");
  }
  const std::string issuer = claims.StringAt("iss").value_or("");
  if (issuer != options.issuer) {
    return Unauthenticated(fmt::format("its issuer is \"{}\": check --oidc-issuer-url",
                                       TruncateUtf8(issuer, kMaxReasonBytes)));
  }
  if (!Contains(claims.Find("aud"), options.client_id)) {
    return Unauthenticated(
        fmt::format("its audience lacks \"{}\": check --oidc-client-id", options.client_id));
  }
  const Json* exp = claims.Find("exp");
  const double expires = exp == nullptr ? 0 : exp->ToDouble().value_or(0);
  if (expires <= std::chrono::duration<double>(now.time_since_epoch()).count()) {
    return Unauthenticated("it has expired: compare the clocks of the issuer and of the console");
  }
  tokens->expires =
      WallTime(std::chrono::seconds(static_cast<int64_t>(std::min(expires, kMaxExpSeconds))));
  tokens->subject = claims.StringAt("sub").value_or("");
  tokens->nonce = claims.StringAt("nonce").value_or("");
  return Status::Ok();
}

}  // namespace

Status CheckOidcOptions(const OidcOptions& options) {
  const Status issuer = CheckIssuer(options.issuer);
  if (!issuer.ok()) return issuer.Annotate("--oidc-issuer-url");
  if (options.client_id.empty()) {
    return Error(Code::kInvalidArgument,
                 "--oidc-issuer-url needs --oidc-client-id: set the ID that the issuer has for "
                 "this console");
  }
  if (options.redirect_url.empty()) {
    return Error(Code::kInvalidArgument,
                 "--oidc-issuer-url needs --oidc-redirect-url: set https://CONSOLE{}, as the "
                 "issuer allows it",
                 kOidcCallbackPath);
  }
  const Status redirect = CheckRedirectUrl(options.redirect_url);
  if (!redirect.ok()) return redirect.Annotate("--oidc-redirect-url");
  const auto scopes = SplitList(options.scopes, ' ');
  if (std::ranges::find(scopes, "openid") == scopes.end()) {
    return Error(Code::kInvalidArgument,
                 "--oidc-scopes: invalid value \"{}\": want scopes separated by spaces, with "
                 "openid",
                 options.scopes);
  }
  return Status::Ok();
}

LoginSecrets SecretsOf(std::string_view secret) {
  const auto derive = [secret](std::string_view purpose) {
    return Base64Url(Sha256(fmt::format("{} {}", purpose, secret)));
  };
  return {derive("state"), derive("nonce"), derive("verifier")};
}

std::string CodeChallenge(std::string_view verifier) { return Base64Url(Sha256(verifier)); }

Result<OidcProvider> ParseProvider(std::string_view document, const std::string& issuer) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(document));
  const std::string name = json.StringAt("issuer").value_or("");
  if (name != issuer) {
    return Error(Code::kInvalidArgument,
                 "it names issuer \"{}\" instead of \"{}\": set --oidc-issuer-url to what the "
                 "issuer calls itself",
                 TruncateUtf8(name, kMaxReasonBytes), issuer);
  }
  OidcProvider provider;
  ASSIGN_OR_RETURN(provider.authorization_endpoint, json.StringAt("authorization_endpoint"));
  ASSIGN_OR_RETURN(provider.token_endpoint, json.StringAt("token_endpoint"));
  for (const std::string& url : {provider.authorization_endpoint, provider.token_endpoint}) {
    if (!IsHttps(url)) {
      return Error(Code::kInvalidArgument, "its endpoint \"{}\" is no https URL", url);
    }
  }
  const Json* methods = json.Find("token_endpoint_auth_methods_supported");
  provider.secret_in_body =
      Contains(methods, "client_secret_post") && !Contains(methods, "client_secret_basic");
  return provider;
}

std::string AuthorizationUrl(const OidcProvider& provider, const OidcOptions& options,
                             const LoginSecrets& secrets) {
  const std::string& url = provider.authorization_endpoint;
  return fmt::format("{}{}{}", url, url.find('?') == std::string::npos ? "?" : "&",
                     Form({{"response_type", "code"},
                           {"client_id", options.client_id},
                           {"redirect_uri", options.redirect_url},
                           {"scope", options.scopes},
                           {"state", secrets.state},
                           {"nonce", secrets.nonce},
                           {"code_challenge", CodeChallenge(secrets.verifier)},
                           {"code_challenge_method", "S256"}}));
}

net::Request TokenRequest(const OidcProvider& provider, const OidcOptions& options,
                          std::string_view client_secret, std::string_view code,
                          std::string_view verifier) {
  return AuthenticatedRequest(provider, options, client_secret,
                              Form({{"grant_type", "authorization_code"},
                                    {"code", code},
                                    {"redirect_uri", options.redirect_url},
                                    {"code_verifier", verifier}}));
}

net::Request RefreshRequest(const OidcProvider& provider, const OidcOptions& options,
                            std::string_view client_secret, std::string_view refresh_token) {
  return AuthenticatedRequest(
      provider, options, client_secret,
      Form({{"grant_type", "refresh_token"}, {"refresh_token", refresh_token}}));
}

std::string IssuerReason(std::string_view error, std::string_view description) {
  return TruncateUtf8(std::string(Trim(fmt::format("{} {}", error, description))), kMaxReasonBytes);
}

Result<OidcTokens> TokensOf(const net::Response& answer, const OidcOptions& options, WallTime now) {
  const Json json = ParseJson(answer.body).value_or({});
  if (answer.status != 200) {
    // An issuer that cannot answer now may answer later.
    return Error(answer.status >= 500 ? Code::kUnavailable : Code::kUnauthenticated,
                 "status {}, {}: log in again; if that fails, check --oidc-client-id, "
                 "--oidc-client-secret-file and --oidc-redirect-url",
                 answer.status,
                 IssuerReason(json.StringAt("error").value_or("no reason"),
                              json.StringAt("error_description").value_or("")));
  }
  OidcTokens tokens{.id_token = json.StringAt("id_token").value_or(""),
                    .refresh_token = json.StringAt("refresh_token").value_or("")};
  if (tokens.id_token.empty()) {
    return Error(Code::kUnauthenticated,
                 "the answer has no id_token: check that the issuer supports OpenID Connect");
  }
  RETURN_IF_ERROR(ReadClaims(options, now, &tokens));
  return tokens;
}

Status CheckNonce(const OidcTokens& tokens, std::string_view nonce) {
  if (SameSecret(tokens.nonce, nonce)) return Status::Ok();
  return Unauthenticated("its nonce belongs to another login: log in again");
}

Result<OidcTokens> MergeRefreshed(const OidcTokens& last, OidcTokens fresh) {
  if (fresh.subject != last.subject) return Unauthenticated("it belongs to another user");
  if (fresh.nonce.empty()) fresh.nonce = last.nonce;
  RETURN_IF_ERROR(CheckNonce(fresh, last.nonce));
  if (fresh.refresh_token.empty()) fresh.refresh_token = last.refresh_token;
  return fresh;
}

OidcLogin::OidcLogin(net::IoThread& io, TaskRunner& runner, OidcOptions options)
    : io_(io), runner_(runner), options_(std::move(options)) {}

std::string OidcLogin::issuer_host() const {
  const Result<net::Url> url = net::ParseUrl(options_.issuer);
  return url.ok() ? url->HostField() : options_.issuer;
}

void OidcLogin::Begin(std::string_view secret, OnText on_url) {
  WithProvider([this, secrets = SecretsOf(secret),
                on_url = std::move(on_url)](const Result<OidcProvider>& provider) {
    if (!provider.ok()) return on_url(provider.status());
    on_url(AuthorizationUrl(*provider, options_, secrets));
  });
}

void OidcLogin::Complete(const std::string& code, std::string_view secret, OnTokens on_tokens) {
  const LoginSecrets secrets = SecretsOf(secret);
  RequestTokens(
      "exchange the code",
      [this, code, secrets](const OidcProvider& provider, std::string_view client_secret) {
        return TokenRequest(provider, options_, client_secret, code, secrets.verifier);
      },
      [secrets, on_tokens = std::move(on_tokens)](Result<OidcTokens> tokens) {
        const Status checked = tokens.ok() ? CheckNonce(*tokens, secrets.nonce) : tokens.status();
        checked.ok() ? on_tokens(std::move(tokens)) : on_tokens(checked);
      });
}

void OidcLogin::Refresh(const OidcTokens& tokens, OnTokens on_tokens) {
  RequestTokens(
      "refresh the tokens",
      [this, tokens](const OidcProvider& provider, std::string_view client_secret) {
        return RefreshRequest(provider, options_, client_secret, tokens.refresh_token);
      },
      [tokens, on_tokens = std::move(on_tokens)](Result<OidcTokens> fresh) {
        on_tokens(fresh.ok() ? MergeRefreshed(tokens, *std::move(fresh)) : fresh.status());
      });
}

void OidcLogin::WithProvider(std::function<void(const Result<OidcProvider>&)> then) {
  if (runner_.clock().Now() < provider_expires_) return then(provider_);
  std::string url = options_.issuer;
  if (url.ends_with('/')) url.pop_back();
  url += "/.well-known/openid-configuration";
  Send(url, {.headers = {{"Accept", "application/json"}}},
       [this, url, then = std::move(then)](const Result<net::Response>& answer) {
         Result<OidcProvider> provider = answer.status();
         if (answer.ok() && answer->status != 200) {
           provider =
               Error(Code::kUnavailable, "status {}: check --oidc-issuer-url", answer->status);
         } else if (answer.ok()) {
           provider = ParseProvider(answer->body, options_.issuer);
         }
         if (!provider.ok()) return then(provider.status().Annotate("cannot use " + url));
         provider_ = *provider;
         provider_expires_ = runner_.clock().Now() + kProviderLifetime;
         then(provider_);
       });
}

void OidcLogin::RequestTokens(std::string_view what, MakeRequest make, OnTokens on_tokens) {
  WithProvider([this, what, make = std::move(make),
                on_tokens = std::move(on_tokens)](const Result<OidcProvider>& provider) {
    if (!provider.ok()) return on_tokens(provider.status());
    std::string client_secret;
    if (!options_.client_secret_file.empty()) {
      const Result<std::string> text = ReadFile(options_.client_secret_file, kMaxSecretBytes);
      if (!text.ok()) return on_tokens(text.status().Annotate("--oidc-client-secret-file"));
      client_secret = Trim(*text);
    }
    const std::string& url = provider->token_endpoint;
    Send(url, make(*provider, client_secret),
         [this, what, url, on_tokens](const Result<net::Response>& answer) {
           Result<OidcTokens> tokens = answer.ok()
                                           ? TokensOf(*answer, options_, runner_.clock().WallNow())
                                           : answer.status();
           if (tokens.ok()) return on_tokens(std::move(tokens));
           on_tokens(tokens.status().Annotate(fmt::format("cannot {} at {}", what, url)));
         });
  });
}

void OidcLogin::Send(const std::string& url, net::Request request, OnResponse then) {
  if (fetches_.size() >= kMaxFetches) {
    return then(Error(Code::kResourceExhausted, "too many users log in: retry in a moment"));
  }
  const size_t path = url.find('/', std::string_view("https://").size());
  const Result<net::Url> server = net::ParseUrl(url.substr(0, path));
  if (!server.ok()) return then(server.status());
  request.target = path == std::string::npos ? "/" : url.substr(path);
  net::HttpClient::Options client{.server = *server};
  client.tls.ca = options_.authorities;
  const uint64_t number = ++last_number_;
  Fetch& fetch = fetches_[number];
  fetch.client = std::make_unique<net::HttpClient>(io_, runner_, std::move(client));
  fetch.call = fetch.client->Send(
      std::move(request), {.deadlines = kIssuerDeadlines, .max_body = kMaxAnswerBytes},
      [this, number, then = std::move(then)](Result<net::Response> answer) {
        // A call must not be destroyed inside its callback.
        runner_.Post([this, number, weak = weak_.Get()] {
          if (weak) fetches_.erase(number);
        });
        then(std::move(answer));
      });
}

}  // namespace tessera::console
