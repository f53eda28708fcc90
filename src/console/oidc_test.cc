// SPDX-License-Identifier: Apache-2.0
#include "src/console/oidc.h"

#include <gtest/gtest.h>

#include "src/console/token_refresher.h"
#include "src/formats/base64.h"

namespace tessera::console {
namespace {

constexpr WallTime kNow = WallTime(std::chrono::seconds(1'700'000'000));

OidcOptions TestOptions() {
  return {.issuer = "https://login.example",
          .client_id = "tessera",
          .redirect_url = "https://console.example/oidc/callback"};
}

net::Request Get(const std::string& target) { return {.target = target}; }

TEST(OidcOptionsTest, AnErrorNamesTheInvalidFlag) {
  const auto error = [](auto change) {
    OidcOptions options = TestOptions();
    change(&options);
    return CheckOidcOptions(options).message();
  };
  EXPECT_TRUE(CheckOidcOptions(TestOptions()).ok());
  EXPECT_EQ(error([](OidcOptions* o) { o->redirect_url = "http://127.0.0.1:8090/oidc/callback"; }),
            "");
  const auto starts = [](const std::string& text, std::string_view flag) {
    EXPECT_TRUE(text.starts_with(flag)) << text;
  };
  starts(error([](OidcOptions* o) { o->issuer = "http://login.example"; }), "--oidc-issuer-url: ");
  starts(error([](OidcOptions* o) { o->client_id = ""; }), "--oidc-issuer-url needs --oidc-cl");
  starts(error([](OidcOptions* o) { o->redirect_url = ""; }), "--oidc-issuer-url needs --oidc-re");
  starts(error([](OidcOptions* o) { o->redirect_url = "http://console.example/oidc/callback"; }),
         "--oidc-redirect-url: ");
  starts(error([](OidcOptions* o) { o->redirect_url = "https://console.example/"; }),
         "--oidc-redirect-url: ");
  starts(error([](OidcOptions* o) { o->scopes = "email"; }), "--oidc-scopes: ");
}

TEST(OidcTest, ComputesTheChallengeOfRfc7636) {
  EXPECT_EQ(CodeChallenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

TEST(OidcTest, DerivesIndependentSecrets) {
  const LoginSecrets one = SecretsOf("a"), again = SecretsOf("a"), other = SecretsOf("b");
  EXPECT_EQ(one.state, again.state);
  EXPECT_NE(one.state, other.state);
  EXPECT_NE(one.nonce, other.nonce);
  EXPECT_NE(one.verifier, other.verifier);
  EXPECT_NE(one.state, one.nonce);
  EXPECT_NE(one.state, one.verifier);
  EXPECT_EQ(one.verifier.size(), 43U);  // RFC 7636 wants 43 to 128 characters
}

TEST(OidcTest, ReadsTheProvidersDocument) {
  const auto parse = [](std::string_view rest) {
    return ParseProvider(fmt::format(R"({{"issuer":"https://login.example",{}}})", rest),
                         "https://login.example");
  };
  const std::string endpoints =
      R"("authorization_endpoint":"https://a/auth","token_endpoint":"https://b/token/")";
  const auto provider = parse(endpoints);
  ASSERT_TRUE(provider.ok()) << provider.status().ToString();
  EXPECT_EQ(provider->token_endpoint, "https://b/token/");
  EXPECT_FALSE(provider->secret_in_body);
  const std::string methods = R"(,"token_endpoint_auth_methods_supported":)";
  EXPECT_TRUE(parse(endpoints + methods + R"(["client_secret_post"])")->secret_in_body);
  EXPECT_FALSE(parse(endpoints + methods + R"(["client_secret_post","client_secret_basic"])")
                   ->secret_in_body);
  EXPECT_FALSE(parse(R"("authorization_endpoint":"https://a/auth")").ok());
  EXPECT_FALSE(
      parse(R"("authorization_endpoint":"https://a/auth","token_endpoint":"http://b/token")").ok());
  EXPECT_FALSE(ParseProvider(fmt::format(R"({{"issuer":"https://evil",{}}})", endpoints),
                             "https://login.example")
                   .ok());
}

TEST(OidcTest, SendsTheChallengeAndKeepsTheVerifier) {
  const LoginSecrets secrets = SecretsOf("a");
  OidcOptions options = TestOptions();
  options.scopes = "openid email";
  const std::string url =
      AuthorizationUrl({.authorization_endpoint = "https://a/auth?p=1"}, options, secrets);
  EXPECT_TRUE(url.starts_with("https://a/auth?p=1&response_type=code&")) << url;
  EXPECT_EQ(url.find(secrets.verifier), std::string::npos);
  const net::Request request = Get(url.substr(std::string_view("https://a").size()));
  EXPECT_EQ(request.Query("client_id"), "tessera");
  EXPECT_EQ(request.Query("redirect_uri"), options.redirect_url);
  EXPECT_EQ(request.Query("scope"), "openid email");
  EXPECT_EQ(request.Query("state"), secrets.state);
  EXPECT_EQ(request.Query("nonce"), secrets.nonce);
  EXPECT_EQ(request.Query("code_challenge"), CodeChallenge(secrets.verifier));
  EXPECT_EQ(request.Query("code_challenge_method"), "S256");
}

TEST(OidcTest, AuthenticatesAsTheProviderWants) {
  const auto request = [](bool in_body, std::string_view secret) {
    return TokenRequest({.secret_in_body = in_body}, TestOptions(), secret, "c/1", "v");
  };
  const auto field = [](const net::Request& sent, std::string_view name) {
    return Get("/?" + sent.body).Query(name);
  };
  const net::Request open = request(false, "");
  EXPECT_EQ(field(open, "grant_type"), "authorization_code");
  EXPECT_EQ(field(open, "code"), "c/1");
  EXPECT_EQ(field(open, "code_verifier"), "v");
  EXPECT_EQ(field(open, "client_id"), "tessera");
  EXPECT_FALSE(open.headers.Has("Authorization"));
  const net::Request basic = request(false, "a b");
  EXPECT_EQ(basic.headers.Get("Authorization"), "Basic " + Base64Encode("tessera:a%20b"));
  EXPECT_FALSE(field(basic, "client_secret"));
  const net::Request post = request(true, "a b");
  EXPECT_EQ(field(post, "client_secret"), "a b");
  EXPECT_FALSE(post.headers.Has("Authorization"));
}

TEST(OidcTest, RefreshesWithTheSameCredentials) {
  const net::Request request = RefreshRequest({}, TestOptions(), "a b", "r/1");
  EXPECT_EQ(Get("/?" + request.body).Query("grant_type"), "refresh_token");
  EXPECT_EQ(Get("/?" + request.body).Query("refresh_token"), "r/1");
  EXPECT_EQ(request.headers.Get("Authorization"), "Basic " + Base64Encode("tessera:a%20b"));
}

std::string ClaimsOf(std::string_view iss, std::string_view aud, int64_t exp) {
  return fmt::format(R"({{"iss":"{}","aud":{},"exp":{},"nonce":"n","sub":"s"}})", iss, aud, exp);
}

Result<OidcTokens> TokensWith(std::string_view claims) {
  const std::string answer =
      fmt::format(R"({{"id_token":"e30.{}.c2ln","refresh_token":"r"}})", Base64Encode(claims));
  return TokensOf({200, {}, answer}, TestOptions(), kNow);
}

constexpr std::string_view kIssuer = "https://login.example";
constexpr int64_t kLater = 1'700'000'060;

TEST(OidcTest, ReportsWhyTheIssuerGivesNoToken) {
  const auto error = [](int status, std::string_view body) {
    return TokensOf({status, {}, std::string(body)}, TestOptions(), kNow).status();
  };
  const Status rejected = error(400, R"({"error":"invalid_grant","error_description":"used"})");
  EXPECT_EQ(rejected.code(), Code::kUnauthenticated);
  EXPECT_NE(rejected.message().find("status 400, invalid_grant used: log in again"),
            std::string::npos);
  EXPECT_EQ(error(503, "").code(), Code::kUnavailable);
  EXPECT_EQ(error(200, R"({"access_token":"x"})").code(), Code::kUnauthenticated);
  EXPECT_EQ(error(200, "<html>").code(), Code::kUnauthenticated);
  EXPECT_EQ(error(200, R"({"id_token":"opaque"})").code(), Code::kUnauthenticated);
}

TEST(OidcTest, AcceptsOnlyTheIdTokenOfThisConsole) {
  const auto tokens = TokensWith(ClaimsOf(kIssuer, R"("tessera")", kLater));
  ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
  EXPECT_EQ(tokens->refresh_token, "r");
  EXPECT_EQ(tokens->subject, "s");
  EXPECT_EQ(tokens->expires, kNow + std::chrono::seconds(60));
  EXPECT_TRUE(TokensWith(ClaimsOf(kIssuer, R"(["other","tessera"])", kLater)).ok());
  const std::pair<std::string, std::string_view> wrong[] = {
      {ClaimsOf("https://evil", R"("tessera")", kLater), "issuer"},
      {ClaimsOf(kIssuer, R"("other")", kLater), "audience"},
      {ClaimsOf(kIssuer, R"(["other"])", kLater), "audience"},
      {ClaimsOf(kIssuer, R"("tessera")", 1'700'000'000), "expired"},
      {fmt::format(R"({{"iss":"{}","aud":"tessera","nonce":"n"}})", kIssuer), "expired"},
      {"[]", "JWT"},
  };
  for (const auto& [text, why] : wrong) {
    const Status status = TokensWith(text).status();
    EXPECT_EQ(status.code(), Code::kUnauthenticated) << text;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  }
}

TEST(OidcTest, AcceptsOnlyTheNonceOfThisLogin) {
  EXPECT_TRUE(CheckNonce({.nonce = "n"}, "n").ok());
  EXPECT_EQ(CheckNonce({.nonce = "m"}, "n").code(), Code::kUnauthenticated);
  EXPECT_EQ(CheckNonce({}, "n").code(), Code::kUnauthenticated);
}

TEST(OidcTest, ARefreshKeepsValuesThatTheIssuerDoesNotSendAgain) {
  const OidcTokens last{.id_token = "1", .refresh_token = "r", .subject = "s", .nonce = "n"};
  const auto kept = MergeRefreshed(last, {.id_token = "2", .subject = "s"});
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->id_token, "2");
  EXPECT_EQ(kept->refresh_token, "r");
  EXPECT_EQ(kept->nonce, "n");
  EXPECT_EQ(MergeRefreshed(last, {.refresh_token = "r2", .subject = "s"})->refresh_token, "r2");
  for (const OidcTokens& other : {OidcTokens{.subject = "t"}, {.subject = "s", .nonce = "m"}}) {
    EXPECT_EQ(MergeRefreshed(last, other).status().code(), Code::kUnauthenticated);
  }
}

TEST(TokenRefresherTest, WaitsForNineTenthsOfTheTokensLifetimeButAtMostAnHour) {
  const auto wait = [](Duration lifetime) {
    return TokenRefresher::WaitBefore(kNow + lifetime, kNow);
  };
  EXPECT_EQ(wait(std::chrono::minutes(5)), std::chrono::seconds(270));
  EXPECT_EQ(wait(std::chrono::hours(24)), std::chrono::hours(1));
  EXPECT_EQ(wait(std::chrono::hours(24 * 365 * 50)), std::chrono::hours(1));
  EXPECT_EQ(wait(std::chrono::seconds(-5)), std::chrono::seconds(1));
}

}  // namespace
}  // namespace tessera::console
