// SPDX-License-Identifier: Apache-2.0
// Address and credentials of the API server, from the pod's service account or a kubeconfig file:
// client certificates, tokens, exec plugins, impersonation, proxies (proxy.h). INVALID_ARGUMENT for
// users with an auth-provider or a password, which Kubernetes has removed, and for interactive
// plugins. Threads: any number, on separate objects.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/kube/exec_plugin.h"
#include "src/net/address.h"
#include "src/net/tls.h"

namespace tessera::kube {

// The impersonated user (as, as-uid, as-groups and as-user-extra of a kubeconfig).
struct Impersonation {
  std::string user;  // "": no impersonation
  std::string uid;
  std::vector<std::string> groups;
  std::vector<std::pair<std::string, std::string>> extra;  // keys may repeat
};

struct Config {
  net::Url server;
  net::TlsOptions tls;
  std::optional<net::Proxy> proxy;
  Impersonation impersonation;
  // At most one of token and token_file is set. The token file is read again when the kubelet
  // rotates it.
  std::string token;
  std::string token_file;
  std::optional<ExecPlugin> exec;  // replaces a token
  std::string default_namespace = "default";
};

using GetEnv = std::function<const char*(const char* name)>;

inline constexpr const char* kServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount";

// Reads KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the files in `dir`.
// FAILED_PRECONDITION outside a pod.
Result<Config> InClusterConfig(const GetEnv& getenv, const std::string& dir = kServiceAccountDir);

// InClusterConfig and the functions below use the proxy that the environment names (proxy.h). The
// default of `getenv` is the environment of this process.

// Reads the named context, or the current one. File names are relative to the kubeconfig's
// directory. An https server without certificate-authority is verified with the system's
// authorities, whose file the environment may name (net::SystemRoots). INVALID_ARGUMENT names the
// file, the entry and the reason. FAILED_PRECONDITION: no such file.
Result<Config> LoadKubeconfig(const std::string& path, const std::string& context = "",
                              const GetEnv& getenv = ::getenv);

// Parses a kubeconfig; `path` is for messages and relative names.
Result<Config> ParseKubeconfig(std::string_view text, const std::string& path,
                               const std::string& context = "", const GetEnv& getenv = ::getenv);

// Merges the files of a list separated by ':', as in $KUBECONFIG. The first file that has an entry
// wins; missing files are skipped. FAILED_PRECONDITION if no file exists.
Result<Config> LoadKubeconfigs(const std::string& paths, const std::string& context = "",
                               const GetEnv& getenv = ::getenv);

// Checks that the certificates and the key for an https server are readable and match.
// INVALID_ARGUMENT names the field and the reason.
Status CheckCertificates(const Config& config);

// `kubeconfig` if it is not empty, else the files of $KUBECONFIG, else the pod's service account.
Result<Config> FindConfig(const std::string& kubeconfig, const GetEnv& getenv = ::getenv);

// Provides the bearer token of the next request. Checks the file each time and reads it again if it
// was replaced, so a rotated token is used at once. Threads: one.
class TokenSource {
 public:
  explicit TokenSource(const Config& config);

  // "" if the configuration has no token. The last token stays in use if the file is missing.
  Result<std::string> Get();
  // Replaces the configuration's token. Has no effect on the token of a file.
  void Set(std::string token);

 private:
  std::string token_;
  std::string file_;
  std::string fingerprint_;
};

}  // namespace tessera::kube
