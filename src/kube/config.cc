// SPDX-License-Identifier: Apache-2.0
#include "src/kube/config.h"

#include <sys/stat.h>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/yaml.h"
#include "src/kube/base64.h"

namespace tessera::kube {
namespace {

constexpr size_t kMaxFile = 4 << 20;

std::string EnvOr(const GetEnv& getenv, const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string Fingerprint(const std::string& path) {
  struct stat file{};
  // Not lstat: the kubelet rotates by moving the ..data link.
  if (::stat(path.c_str(), &file) != 0) return "";
  return fmt::format("{}:{}:{}.{}", file.st_dev, file.st_ino, file.st_mtim.tv_sec,
                     file.st_mtim.tv_nsec);
}

// One kubeconfig file while it is read.
class Kubeconfig {
 public:
  Kubeconfig(std::string path, const Json& root) : path_(std::move(path)), root_(root) {}

  Result<Config> Load(std::string context_name) {
    if (context_name.empty()) context_name = Text(root_, "current-context");
    if (context_name.empty()) return Bad(root_, "current-context is not set");
    ASSIGN_OR_RETURN(const Json* context, Entry("contexts", "context", context_name));
    Config config;
    if (const std::string ns = Text(*context, "namespace"); !ns.empty()) {
      config.default_namespace = ns;
    }
    ASSIGN_OR_RETURN(const Json* cluster, Entry("clusters", "cluster", Text(*context, "cluster")));
    RETURN_IF_ERROR(ReadCluster(*cluster, &config));
    const std::string user_name = Text(*context, "user");
    if (user_name.empty()) return config;
    ASSIGN_OR_RETURN(const Json* user, Entry("users", "user", user_name));
    RETURN_IF_ERROR(ReadUser(*user, &config));
    return config;
  }

 private:
  Status Bad(const Json& where, std::string_view why) const {
    return Error(Code::kInvalidArgument, "{}:{}: {}", path_, where.line(), why);
  }

  static std::string Text(const Json& object, std::string_view key) {
    const Json* value = object.Find(key);
    return value != nullptr && value->is_string() ? value->string_value() : "";
  }

  // kubeconfig keeps lists of {name, <kind>: {...}}.
  Result<const Json*> Entry(std::string_view list, std::string_view kind, const std::string& name) {
    const Json* entries = root_.Find(list);
    if (entries != nullptr && entries->is_array()) {
      for (const Json& entry : entries->items()) {
        if (!entry.is_object() || Text(entry, "name") != name) continue;
        const Json* value = entry.Find(kind);
        if (value == nullptr || !value->is_object()) return Bad(entry, "the entry is empty");
        return value;
      }
    }
    return Bad(root_, fmt::format("{} has no entry named \"{}\"", list, name));
  }

  // A pair such as certificate-authority and certificate-authority-data; the data wins, as in kubectl.
  Result<net::PemSource> Pem(const Json& object, const std::string& key) const {
    if (const std::string data = Text(object, key + "-data"); !data.empty()) {
      auto pem = Base64Decode(data);
      if (!pem.ok()) return Bad(object, fmt::format("{}-data: {}", key, pem.status().message()));
      return net::PemSource{.text = *std::move(pem)};
    }
    return net::PemSource{.file = File(Text(object, key))};
  }

  std::string File(const std::string& name) const {
    return name.empty() || name[0] == '/' ? name : JoinPath(DirName(path_), name);
  }

  Status ReadCluster(const Json& cluster, Config* config) const {
    auto url = net::ParseUrl(Text(cluster, "server"));
    if (!url.ok()) return Bad(cluster, "server: " + url.status().message());
    config->server = *std::move(url);
    if (cluster.Find("proxy-url") != nullptr) return Bad(cluster, "proxy-url is not supported");
    ASSIGN_OR_RETURN(config->tls.ca, Pem(cluster, "certificate-authority"));
    config->tls.server_name = Text(cluster, "tls-server-name");
    if (cluster.Find("insecure-skip-tls-verify") != nullptr) {
      ASSIGN_OR_RETURN(config->tls.skip_verify, cluster.BoolAt("insecure-skip-tls-verify"));
    }
    return Status::Ok();
  }

  Status ReadUser(const Json& user, Config* config) const {
    for (const std::string_view key : {"exec", "auth-provider", "username"}) {
      if (user.Find(key) == nullptr) continue;
      return Bad(user, fmt::format("users with \"{}\" are not supported; use a client certificate, "
                                   "token or tokenFile",
                                   key));
    }
    ASSIGN_OR_RETURN(config->tls.certificate, Pem(user, "client-certificate"));
    ASSIGN_OR_RETURN(config->tls.key, Pem(user, "client-key"));
    if (config->tls.certificate.empty() != config->tls.key.empty()) {
      return Bad(user, "client-certificate and client-key go together");
    }
    config->token_file = File(Text(user, "tokenFile"));
    if (config->token_file.empty()) config->token = Text(user, "token");
    return Status::Ok();
  }

  std::string path_;
  const Json& root_;
};

}  // namespace

Result<Config> InClusterConfig(const GetEnv& getenv, const std::string& dir) {
  const std::string host = EnvOr(getenv, "KUBERNETES_SERVICE_HOST");
  const std::string port = EnvOr(getenv, "KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return Error(Code::kFailedPrecondition,
                 "KUBERNETES_SERVICE_HOST and _PORT are not set: not in a pod; give a kubeconfig");
  }
  ASSIGN_OR_RETURN(const int64_t number, ParseInt(port));
  if (number < 1 || number > 65535) {
    return Error(Code::kInvalidArgument, "KUBERNETES_SERVICE_PORT={} is not a port", port);
  }
  Config config;
  config.server.tls = true;
  config.server.address = {.host = host, .port = static_cast<uint16_t>(number)};
  config.tls.ca.file = JoinPath(dir, "ca.crt");
  config.token_file = JoinPath(dir, "token");
  if (const auto ns = ReadFile(JoinPath(dir, "namespace"), kMaxFile); ns.ok()) {
    config.default_namespace = std::string(Trim(*ns));
  }
  return config;
}

Result<Config> LoadKubeconfig(const std::string& path, const std::string& context) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFile));
  auto root = ParseYaml(text);
  if (!root.ok()) return root.status().Annotate(path);
  if (!root->is_object()) return Error(Code::kInvalidArgument, "{}: not a kubeconfig", path);
  return Kubeconfig(path, *root).Load(context);
}

Result<Config> FindConfig(const std::string& kubeconfig, const GetEnv& getenv) {
  if (!kubeconfig.empty()) return LoadKubeconfig(kubeconfig);
  const std::string from_env = EnvOr(getenv, "KUBECONFIG");
  if (!from_env.empty()) return LoadKubeconfig(from_env);
  return InClusterConfig(getenv);
}

TokenSource::TokenSource(const Config& config) : token_(config.token), file_(config.token_file) {}

Result<std::string> TokenSource::Get() {
  if (file_.empty()) return token_;
  std::string fingerprint = Fingerprint(file_);
  if (!fingerprint.empty() && fingerprint == fingerprint_) return token_;
  const auto text = ReadFile(file_, kMaxFile);
  if (!text.ok()) {
    if (!token_.empty()) return token_;
    return text.status().Annotate("service account token");
  }
  token_ = std::string(Trim(*text));
  fingerprint_ = std::move(fingerprint);
  return token_;
}

}  // namespace tessera::kube
