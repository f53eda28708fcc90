// SPDX-License-Identifier: Apache-2.0
#include "src/kube/config.h"

#include <gtest/gtest.h>

#include <map>

#include "src/base/file.h"

namespace tessera::kube {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = JoinPath(dir_.path(), name);
    EXPECT_TRUE(WriteFileAtomically(path, text, 0600).ok());
    return path;
  }
  GetEnv Env() {
    return [this](const char* name) -> const char* {
      const auto found = env_.find(name);
      return found == env_.end() ? nullptr : found->second.c_str();
    };
  }

  TempDir dir_;
  std::map<std::string, std::string> env_;
};

TEST_F(ConfigTest, ReadsTheServiceAccountOfAPod) {
  env_ = {{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}};
  Write("token", "t1\n");
  Write("namespace", "tessera-system");
  const Config config = InClusterConfig(Env(), dir_.path()).value();
  EXPECT_EQ(config.server.ToString(), "https://[fd00::1]");
  EXPECT_EQ(config.tls.ca.file, JoinPath(dir_.path(), "ca.crt"));
  EXPECT_EQ(config.default_namespace, "tessera-system");
  EXPECT_EQ(TokenSource(config).Get().value(), "t1");
}

TEST_F(ConfigTest, OutsideAPodTheServiceAccountIsAnError) {
  EXPECT_EQ(InClusterConfig(Env(), dir_.path()).status().code(), Code::kFailedPrecondition);
}

TEST_F(ConfigTest, AnInvalidPortIsNamedByItsVariable) {
  // Docker's links set variables of this form.
  env_ = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
          {"KUBERNETES_SERVICE_PORT", "tcp://10.0.0.1:443"}};
  EXPECT_EQ(InClusterConfig(Env(), dir_.path()).status().message(),
            "KUBERNETES_SERVICE_PORT: \"tcp://10.0.0.1:443\" is not a whole number");
}

TEST_F(ConfigTest, ARotatedTokenIsUsedForTheNextRequest) {
  TokenSource tokens(Config{.token_file = Write("token", "t1")});
  EXPECT_EQ(tokens.Get().value(), "t1");
  Write("token", "t2");
  EXPECT_EQ(tokens.Get().value(), "t2");
  // The last token stays valid while the kubelet replaces the files.
  ASSERT_EQ(::remove(JoinPath(dir_.path(), "token").c_str()), 0);
  EXPECT_EQ(tokens.Get().value(), "t2");
}

TEST_F(ConfigTest, AMissingTokenFileIsAnError) {
  TokenSource tokens(Config{.token_file = "/nonexistent/token"});
  EXPECT_EQ(tokens.Get().status().code(), Code::kNotFound);
}

constexpr char kKubeconfig[] = R"(apiVersion: v1
kind: Config
current-context: here
clusters:
- name: a
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority: pki/ca.crt
- name: b
  cluster:
    server: https://b.example
    certificate-authority-data: Y2E=
    tls-server-name: kubernetes
    extensions:
    - name: client.authentication.k8s.io/exec
      extension: {audience: x}
users:
- name: by-certificate
  user:
    client-certificate-data: Y2VydA==
    client-key-data: a2V5
- name: by-token
  user:
    token: secret
- name: by-plugin
  user:
    exec: {command: aws}
- name: by-login
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: bin/login
      args: [get-token]
      env: [{name: A, value: b}]
      provideClusterInfo: true
      interactiveMode: Never
      installHint: install it
- name: half
  user: {client-certificate: c.crt}
contexts:
- name: here
  context: {cluster: a, user: by-certificate, namespace: ns}
- name: token
  context: {cluster: b, user: by-token}
- name: plugin
  context: {cluster: b, user: by-plugin}
- name: login
  context: {cluster: b, user: by-login}
- name: half
  context: {cluster: b, user: half}
- name: lost
  context: {cluster: c, user: by-token}
)";

TEST_F(ConfigTest, ReadsAKubeconfig) {
  const std::string path = Write("config", kKubeconfig);
  const Config here = LoadKubeconfig(path).value();
  EXPECT_EQ(here.server.ToString(), "https://10.0.0.1:6443");
  EXPECT_EQ(here.tls.ca.file, JoinPath(dir_.path(), "pki/ca.crt"));
  EXPECT_EQ(here.tls.certificate.text, "cert");
  EXPECT_EQ(here.tls.key.text, "key");
  EXPECT_EQ(here.default_namespace, "ns");
  const Config token = LoadKubeconfig(path, "token").value();
  EXPECT_EQ(token.tls.ca.text, "ca");
  EXPECT_EQ(token.tls.server_name, "kubernetes");
  EXPECT_EQ(token.token, "secret");
}

std::string KubeconfigOf(const std::string& cluster, const std::string& user) {
  return fmt::format(
      "current-context: here\nclusters: [{{name: c, cluster: {{server: {}}}}}]\n"
      "users: [{{name: u, user: {{{}}}}}]\ncontexts: [{{name: here, context: {{cluster: c, user: "
      "u}}}}]\n",
      cluster, user);
}

TEST_F(ConfigTest, ReadsTheImpersonatedUser) {
  const Impersonation as =
      ParseKubeconfig(KubeconfigOf("\"http://a\"",
                                   "as: jane, as-uid: \"7\", as-groups: [dev, ops], "
                                   "as-user-extra: {reason: [audit, review]}"),
                      "f")
          .value()
          .impersonation;
  EXPECT_EQ(as.user, "jane");
  EXPECT_EQ(as.uid, "7");
  EXPECT_EQ(as.groups, (std::vector<std::string>{"dev", "ops"}));
  EXPECT_EQ(as.extra, (std::vector<std::pair<std::string, std::string>>{{"reason", "audit"},
                                                                        {"reason", "review"}}));
  // Without "as" the request would silently use the user's own identity.
  const Status status =
      ParseKubeconfig(KubeconfigOf("\"http://a\"", "as-groups: [dev]"), "f").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("add \"as\""), std::string::npos) << status.message();
}

TEST_F(ConfigTest, ReadsTheProxyOfACluster) {
  const auto with = [](const std::string& server, const std::string& proxy) {
    return ParseKubeconfig(
        KubeconfigOf(
            fmt::format("\"{}\", insecure-skip-tls-verify: true, proxy-url: \"{}\"", server, proxy),
            ""),
        "f");
  };
  EXPECT_EQ(with("https://a", "http://proxy:3128").value().proxy->address.port, 3128);
  EXPECT_EQ(with("https://a", "http://proxy:3128").value().proxy->ToString(),
            "proxy:3128 (proxy-url)");
  const Status plain = with("http://a", "http://proxy:3128").status();
  EXPECT_NE(plain.message().find("proxy-url"), std::string::npos) << plain.message();
  const Status socks = with("https://a", "socks5://proxy").status();
  EXPECT_NE(socks.message().find("proxy-url: proxies with socks5://"), std::string::npos)
      << socks.message();
}

TEST_F(ConfigTest, InAPodUsesTheProxyOfTheEnvironment) {
  env_ = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
          {"KUBERNETES_SERVICE_PORT", "443"},
          {"HTTPS_PROXY", "http://proxy:3128"}};
  EXPECT_EQ(InClusterConfig(Env(), dir_.path())->proxy->address.host, "proxy");
  env_["NO_PROXY"] = "10.96.0.0/12";
  EXPECT_FALSE(InClusterConfig(Env(), dir_.path())->proxy.has_value());
}

TEST_F(ConfigTest, AKubeconfigUsesTheProxyOfTheGivenEnvironment) {
  env_ = {{"KUBECONFIG", Write("config", kKubeconfig)}, {"HTTPS_PROXY", "http://proxy:3128"}};
  EXPECT_EQ(FindConfig("", Env())->proxy->address.host, "proxy");
  EXPECT_EQ(FindConfig(env_["KUBECONFIG"], Env())->proxy->address.host, "proxy");
  env_.erase("HTTPS_PROXY");
  EXPECT_FALSE(FindConfig("", Env())->proxy.has_value());
}

TEST_F(ConfigTest, ReadsAnExecPlugin) {
  const Config config = LoadKubeconfig(Write("config", kKubeconfig), "login").value();
  ASSERT_TRUE(config.exec.has_value());
  EXPECT_EQ(config.exec->argv,
            (std::vector<std::string>{JoinPath(dir_.path(), "bin/login"), "get-token"}));
  EXPECT_EQ(config.exec->env, std::vector<std::string>{"A=b"});
  EXPECT_EQ(config.exec->install_hint, "install it");
  EXPECT_EQ(config.exec->cluster_config.Serialize(), R"({"audience":"x"})");
}

TEST_F(ConfigTest, NamesThePlaceOfAnErrorInAKubeconfig) {
  const std::string path = Write("config", kKubeconfig);
  const Status plugin = LoadKubeconfig(path, "plugin").status();
  EXPECT_NE(plugin.message().find(path + ":27"), std::string::npos) << plugin.ToString();
  EXPECT_NE(plugin.message().find("exec"), std::string::npos);
  EXPECT_FALSE(LoadKubeconfig(path, "half").ok());
  EXPECT_NE(LoadKubeconfig(path, "lost").status().message().find("\"c\""), std::string::npos);
  EXPECT_FALSE(LoadKubeconfig(path, "none").ok());
  const std::string flag = Write("flag", R"(current-context: a
clusters: [{name: a, cluster: {server: "http://a", insecure-skip-tls-verify: tru}}]
contexts: [{name: a, context: {cluster: a}}])");
  EXPECT_EQ(LoadKubeconfig(flag).status().message(),
            flag + ":2: insecure-skip-tls-verify must be true or false");
  EXPECT_EQ(LoadKubeconfig(Write("list", "- a"), "").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadKubeconfig("/nonexistent").status().code(), Code::kFailedPrecondition);
}

TEST_F(ConfigTest, WithoutAnAuthorityTrustsTheSystemsRoots) {
  const std::string path = Write("config", R"(current-context: a
clusters:
- {name: a, cluster: {server: "https://a"}}
- {name: plain, cluster: {server: "http://a"}}
- {name: careless, cluster: {server: "https://a", insecure-skip-tls-verify: true}}
contexts:
- {name: a, context: {cluster: a}}
- {name: plain, context: {cluster: plain}}
- {name: careless, context: {cluster: careless}}
)");
  env_["SSL_CERT_FILE"] = Write("roots.pem", "roots");
  EXPECT_EQ(LoadKubeconfig(path, "", Env()).value().tls.ca.file, env_["SSL_CERT_FILE"]);
  EXPECT_TRUE(LoadKubeconfig(path, "plain", Env()).value().tls.ca.empty());
  EXPECT_TRUE(LoadKubeconfig(path, "careless", Env()).value().tls.ca.empty());
  env_["SSL_CERT_FILE"] = "/nonexistent/roots.pem";
  const Status missing = LoadKubeconfig(path, "", Env()).status();
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
  EXPECT_NE(missing.message().find("certificate-authority is missing"), std::string::npos);
  EXPECT_NE(missing.message().find("/nonexistent/roots.pem"), std::string::npos);
}

TEST_F(ConfigTest, FindsTheKubeconfigThatTheEnvironmentNames) {
  env_["KUBECONFIG"] = Write("config", kKubeconfig);
  EXPECT_EQ(FindConfig("", Env()).value().default_namespace, "ns");
}

TEST_F(ConfigTest, TheFirstFileWithAnEntryWins) {
  const std::string first = Write("first", R"(
users: [{name: u, user: {token: one}}]
contexts: [{name: mine, context: {cluster: a, user: by-certificate}}]
)");
  const std::string second = Write("second", R"(
current-context: other
clusters: [{name: a, cluster: {server: "https://second:1", certificate-authority: ca.crt}}]
users: [{name: u, user: {token: two}}]
contexts: [{name: other, context: {cluster: a, user: u}}]
)");
  const std::string third = Write("config", kKubeconfig);
  const std::string paths = first + ":/nowhere/config:" + second + ":" + third;
  env_["KUBECONFIG"] = paths;
  const Config config = FindConfig("", Env()).value();
  EXPECT_EQ(config.server.ToString(), "https://second:1") << "the third file also names a server";
  EXPECT_EQ(config.tls.ca.file, JoinPath(dir_.path(), "ca.crt"));
  EXPECT_EQ(config.token, "one");
  EXPECT_EQ(FindConfig(paths, Env()).value().token, "one") << "an option's default";
  const Config mine = LoadKubeconfigs(paths, "mine").value();
  EXPECT_EQ(mine.server.ToString(), "https://second:1");
  EXPECT_EQ(mine.tls.certificate.text, "cert");
  EXPECT_NE(LoadKubeconfigs(paths, "lost").status().message().find(second + ":" + third),
            std::string::npos);
  const Status none = LoadKubeconfigs("/nowhere/a:/nowhere/b").status();
  EXPECT_EQ(none.code(), Code::kFailedPrecondition);
  EXPECT_EQ(none.message(),
            "no kubeconfig: /nowhere/a:/nowhere/b: no such file: give --kubeconfig FILE, or set "
            "$KUBECONFIG");
  // An existing file that is not a kubeconfig is an error, not skipped.
  EXPECT_EQ(LoadKubeconfigs(Write("list", "- a") + ":" + third).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::kube
