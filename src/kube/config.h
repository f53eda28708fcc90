// SPDX-License-Identifier: Apache-2.0
// Where the API server is and who we are there. Read from the pod's service account or from a
// kubeconfig file. Users with an exec plugin, an auth-provider, a password or a proxy are refused by
// name: they cannot be used yet.
// Threads: functions are safe from any; a Config is a value.
#pragma once

#include <functional>
#include <string>

#include "src/base/status.h"
#include "src/net/address.h"
#include "src/net/tls.h"

namespace tessera::kube {

struct Config {
  net::Url server;
  net::TlsOptions tls;
  // At most one of the two. The file is re-read when the kubelet rotates it.
  std::string token;
  std::string token_file;
  std::string default_namespace = "default";
};

using GetEnv = std::function<const char*(const char* name)>;

inline constexpr const char* kServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount";

// From KUBERNETES_SERVICE_HOST and _PORT and the files in `dir`. FAILED_PRECONDITION outside a pod.
Result<Config> InClusterConfig(const GetEnv& getenv, const std::string& dir = kServiceAccountDir);

// The context of that name, or the current one. Relative file names count from the file's folder.
// INVALID_ARGUMENT names the file, the entry and what is wrong with it.
Result<Config> LoadKubeconfig(const std::string& path, const std::string& context = "");

// `kubeconfig` if it is not empty, else $KUBECONFIG (one file), else the pod's service account.
Result<Config> FindConfig(const std::string& kubeconfig, const GetEnv& getenv);

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
