// SPDX-License-Identifier: Apache-2.0
#include "src/kube/config.h"

#include <gtest/gtest.h>

#include <map>

#include "src/base/file.h"
#include "src/kube/base64.h"

namespace tessera::kube {
namespace {

class ConfigTest : public testing::Test {
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

TEST_F(ConfigTest, ARotatedTokenIsReadWithTheNextRequest) {
  TokenSource tokens(Config{.token_file = Write("token", "t1")});
  EXPECT_EQ(tokens.Get().value(), "t1");
  Write("token", "t2");
  EXPECT_EQ(tokens.Get().value(), "t2");
  // While the kubelet moves files about, the last one holds.
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
- name: half
  user: {client-certificate: c.crt}
contexts:
- name: here
  context: {cluster: a, user: by-certificate, namespace: ns}
- name: token
  context: {cluster: b, user: by-token}
- name: plugin
  context: {cluster: b, user: by-plugin}
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

TEST_F(ConfigTest, SaysWhereAKubeconfigIsWrong) {
  const std::string path = Write("config", kKubeconfig);
  const Status plugin = LoadKubeconfig(path, "plugin").status();
  EXPECT_NE(plugin.message().find(path + ":24"), std::string::npos) << plugin.ToString();
  EXPECT_NE(plugin.message().find("exec"), std::string::npos);
  EXPECT_FALSE(LoadKubeconfig(path, "half").ok());
  EXPECT_NE(LoadKubeconfig(path, "lost").status().message().find("\"c\""), std::string::npos);
  EXPECT_FALSE(LoadKubeconfig(path, "none").ok());
  EXPECT_EQ(LoadKubeconfig(Write("list", "- a"), "").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LoadKubeconfig("/nonexistent").status().code(), Code::kNotFound);
}

TEST_F(ConfigTest, FindsTheFileTheEnvironmentNames) {
  env_["KUBECONFIG"] = Write("config", kKubeconfig);
  EXPECT_EQ(FindConfig("", Env()).value().default_namespace, "ns");
}

TEST(Base64Test, DecodesAndRefuses) {
  EXPECT_EQ(Base64Decode("").value(), "");
  EXPECT_EQ(Base64Decode("Zg==").value(), "f");
  EXPECT_EQ(Base64Decode("Zm8=\n").value(), "fo");
  EXPECT_EQ(Base64Decode("Zm 9v").value(), "foo");
  EXPECT_EQ(Base64Decode("+/+/").value(), "\xfb\xff\xbf");
  for (const char* bad : {"Zg", "Zg=", "Z===", "Zg==Zg==", "Z!==", "===="}) {
    EXPECT_FALSE(Base64Decode(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tessera::kube
