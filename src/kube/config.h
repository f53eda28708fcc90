// SPDX-License-Identifier: Apache-2.0
// Where the API server is and who we are there. Read from the pod's service account or from a
// kubeconfig file: client certificates, tokens and exec plugins, impersonation, proxies (proxy.h).
// Users with an auth-provider or a password (both gone from Kubernetes) and plugins that want to
// talk to a person are rejected by name. Threads: functions are safe from any; a Config is a value.
#pragma once

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

// The user to act as (as, as-uid, as-groups and as-user-extra of a kubeconfig).
struct Impersonation {
  std::string user;  // "": oneself
  std::string uid;
  std::vector<std::string> groups;
  std::vector<std::pair<std::string, std::string>> extra;  // a key may come several times
};

struct Config {
  net::Url server;
  net::TlsOptions tls;
  std::optional<net::Proxy> proxy;
  Impersonation impersonation;
  // At most one of the two. The file is re-read when the kubelet rotates it.
  std::string token;
  std::string token_file;
  std::optional<ExecPlugin> exec;  // instead of a token
  std::string default_namespace = "default";
};

using GetEnv = std::function<const char*(const char* name)>;

inline constexpr const char* kServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount";

// From KUBERNETES_SERVICE_HOST and _PORT and the files in `dir`. FAILED_PRECONDITION outside a pod.
Result<Config> InClusterConfig(const GetEnv& getenv, const std::string& dir = kServiceAccountDir);

// Both also take the proxy of the environment.

// The context of that name, or the current one. Relative file names count from the file's folder.
// An https server without certificate-authority is checked with the system's (net/tls.h).
// INVALID_ARGUMENT names the file, the entry and what is wrong with it.
Result<Config> LoadKubeconfig(const std::string& path, const std::string& context = "");

// The same of a file that was read; `path` is for messages and relative names.
Result<Config> ParseKubeconfig(std::string_view text, const std::string& path,
                               const std::string& context = "");

// The same from files joined by ':', as $KUBECONFIG has them. Each adds what those before it do not
// have; those that are not there are passed over. NOT_FOUND where none is.
Result<Config> LoadKubeconfigs(const std::string& paths, const std::string& context = "");

// Whether the certificates and the key that a kubeconfig gives for an https server can be used.
// INVALID_ARGUMENT names the field and the reason.
Status CheckCertificates(const Config& config);

// `kubeconfig` if it is not empty, else the files of $KUBECONFIG, else the pod's service account.
Result<Config> FindConfig(const std::string& kubeconfig, const GetEnv& getenv);
// With the environment of this process.
Result<Config> FindConfig(const std::string& kubeconfig);

// The bearer token to send now. Looks at the file each time and reads it when it was replaced, so a
// rotated token is used with the next request. Threads: one.
class TokenSource {
 public:
  explicit TokenSource(const Config& config);

  // "" where the configuration has no token. Once read, a token outlives its file.
  Result<std::string> Get();

 private:
  std::string token_;
  std::string file_;
  std::string fingerprint_;
};

}  // namespace tessera::kube
