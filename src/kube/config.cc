// SPDX-License-Identifier: Apache-2.0
#include "src/kube/config.h"

#include <vector>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/formats/base64.h"
#include "src/formats/yaml.h"
#include "src/kube/proxy.h"

namespace tessera::kube {
namespace {

constexpr size_t kMaxFile = 4 << 20;

std::string EnvOrEmpty(const GetEnv& getenv, const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string Text(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value != nullptr && value->is_string() ? value->string_value() : "";
}

// Parser of one kubeconfig file.
class KubeconfigFile {
 public:
  KubeconfigFile(std::string path, Json root) : path_(std::move(path)), root_(std::move(root)) {}

  const std::string& path() const { return path_; }
  std::string current_context() const { return Text(root_, "current-context"); }

  Status Invalid(std::string_view why) const { return Invalid(root_, why); }

  // Finds an entry in a list of {name, <kind>: {...}}. Null if the file has no entry of that name.
  Result<const Json*> Entry(std::string_view list, std::string_view kind,
                            const std::string& name) const {
    const Json* entries = root_.Find(list);
    if (entries == nullptr || !entries->is_array()) return nullptr;
    for (const Json& entry : entries->items()) {
      if (!entry.is_object() || Text(entry, "name") != name) continue;
      const Json* value = entry.Find(kind);
      if (value == nullptr || !value->is_object()) return Invalid(entry, "the entry is empty");
      return value;
    }
    return nullptr;
  }

  Status ReadCluster(const Json& cluster, const GetEnv& getenv, Config* config) const {
    auto url = net::ParseUrl(Text(cluster, "server"));
    if (!url.ok()) return Invalid(cluster, "server: " + url.status().message());
    config->server = *std::move(url);
    RETURN_IF_ERROR(ReadProxy(cluster, getenv, config));
    ASSIGN_OR_RETURN(config->tls.ca, Pem(cluster, "certificate-authority"));
    config->tls.server_name = Text(cluster, "tls-server-name");
    ASSIGN_OR_RETURN(config->tls.skip_verify, Flag(cluster, "insecure-skip-tls-verify"));
    if (!config->server.tls || config->tls.skip_verify || !config->tls.ca.empty()) {
      return Status::Ok();
    }
    // As in kubectl: a public authority may have signed the server's certificate.
    auto roots = net::SystemRoots(getenv);
    if (!roots.ok()) {
      return Invalid(cluster, "certificate-authority is missing, and " + roots.status().message());
    }
    config->tls.ca = *std::move(roots);
    return Status::Ok();
  }

  Status ReadUser(const Json& user, Config* config) const {
    for (const std::string_view key : {"auth-provider", "username"}) {
      if (user.Find(key) == nullptr) continue;
      return Invalid(user,
                     fmt::format("users with \"{}\" are not supported; use a client certificate, "
                                 "token, tokenFile or exec",
                                 key));
    }
    ASSIGN_OR_RETURN(config->tls.certificate, Pem(user, "client-certificate"));
    ASSIGN_OR_RETURN(config->tls.key, Pem(user, "client-key"));
    if (config->tls.certificate.empty() != config->tls.key.empty()) {
      return Invalid(user, "client-certificate and client-key require each other");
    }
    config->token_file = ResolvePath(Text(user, "tokenFile"));
    if (config->token_file.empty()) config->token = Text(user, "token");
    RETURN_IF_ERROR(ReadImpersonation(user, &config->impersonation));
    const Json* exec = user.Find("exec");
    if (exec == nullptr) return Status::Ok();
    if (!config->token.empty() || !config->token_file.empty() || !config->tls.key.empty()) {
      return Invalid(user,
                     "exec cannot be combined with a token or a certificate: remove one of them");
    }
    ASSIGN_OR_RETURN(config->exec, ReadExec(*exec));
    return Status::Ok();
  }

  // The cluster's extension for exec plugins.
  static Json ExecExtension(const Json& cluster) {
    const Json* extensions = cluster.Find("extensions");
    if (extensions == nullptr || !extensions->is_array()) return {};
    for (const Json& entry : extensions->items()) {
      if (!entry.is_object() || Text(entry, "name") != "client.authentication.k8s.io/exec")
        continue;
      const Json* config = entry.Find("extension");
      return config != nullptr ? *config : Json();
    }
    return {};
  }

 private:
  Status Invalid(const Json& where, std::string_view why) const {
    return Error(Code::kInvalidArgument, "{}:{}: {}", path_, where.line(), why);
  }

  Status ReadProxy(const Json& cluster, const GetEnv& getenv, Config* config) const {
    const std::string url = Text(cluster, "proxy-url");
    if (url.empty()) {
      ASSIGN_OR_RETURN(config->proxy, ProxyFromEnvironment(getenv, config->server));
      return Status::Ok();
    }
    if (!config->server.tls) {
      return Invalid(cluster, "proxy-url is supported only for https servers");
    }
    auto proxy = ParseProxy(url);
    if (!proxy.ok()) return Invalid(cluster, "proxy-url: " + proxy.status().message());
    proxy->setting = "proxy-url";
    config->proxy = *std::move(proxy);
    return Status::Ok();
  }

  Status ReadImpersonation(const Json& user, Impersonation* as) const {
    as->user = Text(user, "as");
    as->uid = Text(user, "as-uid");
    ASSIGN_OR_RETURN(as->groups, Texts(user, "as-groups"));
    const Json* extra = user.Find("as-user-extra");
    if (extra != nullptr && extra->is_object()) {
      for (const auto& [key, values] : extra->members()) {
        ASSIGN_OR_RETURN(const std::vector<std::string> texts, Texts(*extra, key));
        for (const std::string& text : texts) as->extra.emplace_back(key, text);
      }
    }
    if (as->user.empty() && !(as->uid.empty() && as->groups.empty() && as->extra.empty())) {
      return Invalid(user, "as-uid, as-groups and as-user-extra require a user: add \"as\"");
    }
    return Status::Ok();
  }

  Result<std::vector<std::string>> Texts(const Json& object, std::string_view key) const {
    std::vector<std::string> texts;
    const Json* list = object.Find(key);
    if (list == nullptr || list->is_null()) return texts;
    if (!list->is_array()) return Invalid(*list, fmt::format("{} must be a list of texts", key));
    for (const Json& entry : list->items()) {
      if (!entry.is_string()) return Invalid(entry, fmt::format("{} must be a list of texts", key));
      texts.push_back(entry.string_value());
    }
    return texts;
  }

  Result<bool> Flag(const Json& object, std::string_view key) const {
    const Json* value = object.Find(key);
    if (value == nullptr) return false;
    if (value->kind() != Json::Kind::kBool)
      return Invalid(*value, fmt::format("{} must be true or false", key));
    return value->bool_value();
  }

  // Reads a pair of fields such as certificate-authority and certificate-authority-data. If both
  // exist, the -data field is used, as in kubectl.
  Result<net::PemSource> Pem(const Json& object, const std::string& key) const {
    if (const std::string data = Text(object, key + "-data"); !data.empty()) {
      auto pem = Base64Decode(data);
      if (!pem.ok())
        return Invalid(object, fmt::format("{}-data: {}", key, pem.status().message()));
      return net::PemSource{.text = *std::move(pem)};
    }
    return net::PemSource{.file = ResolvePath(Text(object, key))};
  }

  std::string ResolvePath(const std::string& name) const {
    return name.empty() || name[0] == '/' ? name : JoinPath(DirName(path_), name);
  }

  Result<ExecPlugin> ReadExec(const Json& exec) const {
    ExecPlugin plugin{.api_version = Text(exec, "apiVersion"),
                      .install_hint = Text(exec, "installHint")};
    constexpr std::string_view kGroup = "client.authentication.k8s.io/";
    if (plugin.api_version != std::string(kGroup) + "v1" &&
        plugin.api_version != std::string(kGroup) + "v1beta1") {
      return Invalid(exec,
                     fmt::format("exec: apiVersion \"{}\" is not supported: want {}v1 or v1beta1",
                                 plugin.api_version, kGroup));
    }
    if (Text(exec, "interactiveMode") == "Always") {
      return Invalid(exec, "exec: interactiveMode Always requires a terminal");
    }
    const std::string command = Text(exec, "command");
    if (command.empty()) return Invalid(exec, "exec: command is missing");
    // Like kubectl: a path is relative to the kubeconfig's directory, a bare name is looked up in
    // PATH.
    plugin.argv = {command.find('/') == std::string::npos ? command : ResolvePath(command)};
    const Json* args = exec.Find("args");
    for (size_t i = 0; args != nullptr && args->is_array() && i < args->items().size(); ++i) {
      if (!args->items()[i].is_string())
        return Invalid(args->items()[i], "exec: args must be strings");
      plugin.argv.push_back(args->items()[i].string_value());
    }
    const Json* env = exec.Find("env");
    for (size_t i = 0; env != nullptr && env->is_array() && i < env->items().size(); ++i) {
      const Json& entry = env->items()[i];
      const std::string name = entry.is_object() ? Text(entry, "name") : "";
      if (name.empty()) return Invalid(entry, "exec: env must be a list of name and value");
      plugin.env.push_back(name + "=" + Text(entry, "value"));
    }
    ASSIGN_OR_RETURN(plugin.provide_cluster_info, Flag(exec, "provideClusterInfo"));
    return plugin;
  }

  std::string path_;
  Json root_;
};

// Merged kubeconfig files. As in kubectl, the first file that has an entry (or current-context)
// determines it.
class Kubeconfig {
 public:
  explicit Kubeconfig(std::vector<KubeconfigFile> files) : files_(std::move(files)) {}

  Result<Config> Load(std::string context_name, const GetEnv& getenv) const {
    for (const KubeconfigFile& file : files_) {
      if (context_name.empty()) context_name = file.current_context();
    }
    if (context_name.empty()) return Invalid("current-context is not set");
    ASSIGN_OR_RETURN(const FileEntry context, Find("contexts", "context", context_name));
    Config config;
    if (const std::string ns = Text(*context.entry, "namespace"); !ns.empty()) {
      config.default_namespace = ns;
    }
    ASSIGN_OR_RETURN(const FileEntry cluster,
                     Find("clusters", "cluster", Text(*context.entry, "cluster")));
    RETURN_IF_ERROR(cluster.file->ReadCluster(*cluster.entry, getenv, &config));
    const std::string user_name = Text(*context.entry, "user");
    if (user_name.empty()) return config;
    ASSIGN_OR_RETURN(const FileEntry user, Find("users", "user", user_name));
    RETURN_IF_ERROR(user.file->ReadUser(*user.entry, &config));
    if (config.exec && config.exec->provide_cluster_info) {
      config.exec->cluster_config = KubeconfigFile::ExecExtension(*cluster.entry);
    }
    return config;
  }

 private:
  struct FileEntry {
    const KubeconfigFile* file;
    const Json* entry;
  };

  Status Invalid(std::string_view why) const {
    if (files_.size() == 1) return files_[0].Invalid(why);
    std::string paths;
    for (const KubeconfigFile& file : files_) paths += (paths.empty() ? "" : ":") + file.path();
    return Error(Code::kInvalidArgument, "{}: {}", paths, why);
  }

  Result<FileEntry> Find(std::string_view list, std::string_view kind,
                         const std::string& name) const {
    for (const KubeconfigFile& file : files_) {
      ASSIGN_OR_RETURN(const Json* entry, file.Entry(list, kind, name));
      if (entry != nullptr) return FileEntry{&file, entry};
    }
    return Invalid(fmt::format("{} has no entry named \"{}\"", list, name));
  }

  const std::vector<KubeconfigFile> files_;
};

// FAILED_PRECONDITION, because callers take NOT_FOUND for a missing object in the cluster.
Status NoKubeconfig(std::string_view place) {
  return Error(Code::kFailedPrecondition,
               "no kubeconfig: {}: no such file: give --kubeconfig FILE, or set $KUBECONFIG",
               place);
}

Result<KubeconfigFile> ParseFile(std::string_view text, const std::string& path) {
  auto root = ParseYaml(text);
  if (!root.ok()) return root.status().Annotate(path);
  if (!root->is_object()) return Error(Code::kInvalidArgument, "{}: not a kubeconfig", path);
  return KubeconfigFile(path, *std::move(root));
}

}  // namespace

Result<Config> InClusterConfig(const GetEnv& getenv, const std::string& dir) {
  const std::string host = EnvOrEmpty(getenv, "KUBERNETES_SERVICE_HOST");
  const std::string port = EnvOrEmpty(getenv, "KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return Error(
        Code::kFailedPrecondition,
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set outside a pod: give a "
        "kubeconfig");
  }
  ASSIGN_OR_RETURN(const int64_t number, ParseInt(port).Annotate("KUBERNETES_SERVICE_PORT"));
  if (number < 1 || number > 65535) {
    return Error(Code::kInvalidArgument, "invalid KUBERNETES_SERVICE_PORT={}: want 1 to 65535",
                 port);
  }
  Config config;
  config.server.tls = true;
  config.server.address = {.host = host, .port = static_cast<uint16_t>(number)};
  config.tls.ca.file = JoinPath(dir, "ca.crt");
  config.token_file = JoinPath(dir, "token");
  ASSIGN_OR_RETURN(config.proxy, ProxyFromEnvironment(getenv, config.server));
  if (const auto ns = ReadFile(JoinPath(dir, "namespace"), kMaxFile); ns.ok()) {
    config.default_namespace = std::string(Trim(*ns));
  }
  return config;
}

Result<Config> LoadKubeconfig(const std::string& path, const std::string& context,
                              const GetEnv& getenv) {
  const Result<std::string> text = ReadFile(path, kMaxFile);
  if (text.status().code() == Code::kNotFound) return NoKubeconfig(path);
  RETURN_IF_ERROR(text.status());
  return ParseKubeconfig(*text, path, context, getenv);
}

Result<Config> ParseKubeconfig(std::string_view text, const std::string& path,
                               const std::string& context, const GetEnv& getenv) {
  ASSIGN_OR_RETURN(KubeconfigFile file, ParseFile(text, path));
  return Kubeconfig({std::move(file)}).Load(context, getenv);
}

Result<Config> LoadKubeconfigs(const std::string& paths, const std::string& context,
                               const GetEnv& getenv) {
  std::vector<KubeconfigFile> files;
  for (const std::string_view path : SplitList(paths, ':')) {
    const auto text = ReadFile(std::string(path), kMaxFile);
    if (text.status().code() == Code::kNotFound) continue;
    if (!text.ok()) return text.status();
    ASSIGN_OR_RETURN(KubeconfigFile file, ParseFile(*text, std::string(path)));
    files.push_back(std::move(file));
  }
  if (files.empty()) return NoKubeconfig(paths);
  return Kubeconfig(std::move(files)).Load(context, getenv);
}

Status CheckCertificates(const Config& config) {
  if (!config.server.tls) return Status::Ok();
  const auto check = [](const char* field, const net::PemSource& source, const Status& status) {
    if (status.ok()) return status;
    return Error(Code::kInvalidArgument, "{}{}: {}", field, source.file.empty() ? "-data" : "",
                 status.message());
  };
  const net::TlsOptions& tls = config.tls;
  if (!tls.skip_verify) {
    RETURN_IF_ERROR(check("certificate-authority", tls.ca, net::CheckAuthorities(tls.ca)));
  }
  if (tls.certificate.empty()) return Status::Ok();
  return check("client-certificate", tls.certificate,
               net::CheckClientPair(tls.certificate, tls.key));
}

Result<Config> FindConfig(const std::string& kubeconfig, const GetEnv& getenv) {
  const std::string from_env = EnvOrEmpty(getenv, "KUBECONFIG");
  // The default of --kubeconfig is $KUBECONFIG, which may name several files.
  if (!kubeconfig.empty() && kubeconfig != from_env) return LoadKubeconfig(kubeconfig, "", getenv);
  if (!from_env.empty()) return LoadKubeconfigs(from_env, "", getenv);
  return InClusterConfig(getenv);
}

TokenSource::TokenSource(const Config& config) : token_(config.token), file_(config.token_file) {}

Result<std::string> TokenSource::Get() {
  if (file_.empty()) return token_;
  std::string fingerprint = FileFingerprint(file_);
  if (!fingerprint.empty() && fingerprint == fingerprint_) return token_;
  const auto text = ReadFile(file_, kMaxFile);
  if (!text.ok()) {
    if (!token_.empty()) return token_;
    return text.status().Annotate("cannot read the token");
  }
  token_ = std::string(Trim(*text));
  fingerprint_ = std::move(fingerprint);
  return token_;
}

void TokenSource::Set(std::string token) {
  if (file_.empty()) token_ = std::move(token);
}

}  // namespace tessera::kube
