// SPDX-License-Identifier: Apache-2.0
#include "src/kube/exec_plugin.h"

#include <gtest/gtest.h>

#include "src/kube/times.h"

namespace tessera::kube {
namespace {

constexpr char kV1[] = "client.authentication.k8s.io/v1";

Result<ExecCredential> Parse(const std::string& status) {
  return ParseExecCredential(
      fmt::format(R"({{"apiVersion":"{}","kind":"ExecCredential","status":{}}})", kV1, status),
      kV1);
}

ExecPlugin Shell(const std::string& script) {
  return {.api_version = kV1, .argv = {"sh", "-c", script}};
}
Result<ExecCredential> Answer(const ExecPlugin& plugin) {
  return RunExecPlugin(plugin, {}, {}, std::chrono::seconds(10));
}

TEST(ExecPluginTest, ReadsATokenAndItsExpiry) {
  const auto read = Parse(R"({"token":"t","expirationTimestamp":"2026-01-31T23:59:59Z"})").value();
  EXPECT_EQ(read.token, "t");
  EXPECT_EQ(Rfc3339(*read.expires), "2026-01-31T23:59:59Z");
  EXPECT_EQ(Parse(R"({"clientCertificateData":"c","clientKeyData":"k"})").value().key, "k");
}

TEST(ExecPluginTest, RejectsInvalidOutputWithoutQuotingIt) {
  for (const char* status : {"{}", "[]", R"({"clientKeyData":"secret"})",
                             R"({"token":"secret","expirationTimestamp":"x"})"}) {
    const Status error = Parse(status).status();
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << status;
    EXPECT_EQ(error.message().find("secret"), std::string::npos) << error.ToString();
  }
  EXPECT_FALSE(ParseExecCredential("secret", kV1).ok());
  EXPECT_FALSE(ParseExecCredential(R"({"kind":"ExecCredential","apiVersion":"x/v1"})", kV1).ok());
}

TEST(ExecPluginTest, PassesTheClusterToThePluginOnRequest) {
  ExecPlugin plugin = Shell("");
  const net::Url server{.tls = true, .address = {.host = "a.example", .port = 443}};
  const net::TlsOptions tls{.ca = {.text = "ca"}, .server_name = "n"};
  EXPECT_EQ(ExecInfo(plugin, server, tls).value().find("cluster"), std::string::npos);
  plugin.provide_cluster_info = true;
  plugin.cluster_config = Json::Int(7);
  const Json info = ParseJson(ExecInfo(plugin, server, tls).value()).value();
  const Json* cluster = info.Find("spec")->Find("cluster");
  EXPECT_EQ(cluster->Serialize(), R"({"server":"https://a.example","tls-server-name":"n",)"
                                  R"("certificate-authority-data":"Y2E=","config":7})");
}

TEST(ExecPluginTest, RunsWithItsEnvironment) {
  ExecPlugin plugin = Shell(R"(printf %s "$KUBERNETES_EXEC_INFO" | grep -q '"interactive":false' &&
    echo "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",
          \"status\":{\"token\":\"$WHO\"}}")");
  plugin.env = {"WHO=me"};
  const auto credential = Answer(plugin);
  EXPECT_EQ(credential.value().token, "me");
}

TEST(ExecPluginTest, TheErrorContainsThePluginsStandardError) {
  const Status failed = Answer(Shell("echo no login >&2; exit 4")).status();
  EXPECT_EQ(failed.code(), Code::kUnauthenticated);
  EXPECT_NE(failed.message().find("exit code 4: no login"), std::string::npos);
  ExecPlugin missing{.api_version = kV1, .argv = {"no-such-plugin"}, .install_hint = "get it"};
  const Status hint = Answer(missing).status();
  EXPECT_EQ(hint.code(), Code::kNotFound);
  EXPECT_NE(hint.message().find("get it"), std::string::npos);
}

TEST(ExecPluginTest, TheErrorAfterTheTimeoutDoesNotQuoteTheOutput) {
  const ExecPlugin plugin = Shell("echo secret; exec sleep 60");
  const Status late = RunExecPlugin(plugin, {}, {}, std::chrono::milliseconds(500)).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "exec plugin sh did not end within 0.5 s and was killed");
}

TEST(TimesTest, ReadsAndWritesTimes) {
  const WallTime time = ParseRfc3339("2026-02-28T23:59:59.123456789Z").value();
  EXPECT_EQ(Rfc3339Micros(time), "2026-02-28T23:59:59.123456Z");
  EXPECT_EQ(ParseRfc3339("2026-03-01T07:59:59.123456789+08:00").value(), time);
  EXPECT_EQ(ParseRfc3339("1970-01-01T00:00:00Z").value(), WallTime{});
  for (const char* bad : {"", "2026-02-30T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00",
                          "2026-01-01T24:00:00Z", "2026-01-01T00:00:00.Z", "9999-01-01T00:00:00Z",
                          "2026-01-01T00:00:00Zx", "2026-01-01T00:00:00+1:00"}) {
    EXPECT_FALSE(ParseRfc3339(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tessera::kube
