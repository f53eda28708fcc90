// SPDX-License-Identifier: Apache-2.0
#include "src/components/driver_daemonset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/components/edit.h"

namespace tessera::components {
namespace {

struct KnownSystem {
  std::string_view os_image;  // how nodeInfo.osImage begins
  std::string_view id;
  bool major_only;                   // image tags have only the major version
  std::string_view package_sources;  // the system's directory of package sources
};

constexpr std::array<KnownSystem, 8> kSystems = {{
    {"Ubuntu ", "ubuntu", false, "/etc/apt/sources.list.d"},
    {"Debian GNU/Linux ", "debian", true, "/etc/apt/sources.list.d"},
    {"Red Hat Enterprise Linux CoreOS ", "rhcos", false, "/etc/yum.repos.d"},
    {"Red Hat Enterprise Linux ", "rhel", true, "/etc/yum.repos.d"},
    {"Rocky Linux ", "rocky", true, "/etc/yum.repos.d"},
    {"Oracle Linux Server ", "ol", true, "/etc/yum.repos.d"},
    {"CentOS Linux ", "centos", true, "/etc/yum.repos.d"},
    {"SUSE Linux Enterprise Server ", "sles", false, "/etc/zypp/repos.d"},
}};

const KnownSystem* FindSystem(std::string_view id) {
  const auto found = std::ranges::find(kSystems, id, &KnownSystem::id);
  return found != kSystems.end() ? &*found : nullptr;
}

// Converts "22.04.4 LTS" to "22.04", and SUSE's "15 SP5" to "15.5".
std::string VersionIn(std::string_view text) {
  const size_t end = text.find_first_not_of("0123456789.");
  std::string_view number = text.substr(0, end);
  if (end != std::string_view::npos && text.substr(end).starts_with(" SP")) {
    std::string_view pack = text.substr(end + 3);
    pack = pack.substr(0, pack.find_first_not_of("0123456789"));
    return fmt::format("{}.{}", number, pack);
  }
  const size_t minor = number.find('.');
  const size_t patch = minor == std::string_view::npos ? minor : number.find('.', minor + 1);
  return std::string(number.substr(0, patch));
}

std::string_view ModuleName(KernelModule module) {
  switch (module) {
    case KernelModule::kOpen:
      return "open";
    case KernelModule::kProprietary:
      return "proprietary";
    case KernelModule::kAuto:
      break;
  }
  return "auto";
}

// Not std::hash, which may differ between builds.
std::string DigestOf(std::string_view text) { return fmt::format("{:016x}", Fnv1a(text)); }

Json Text(std::string_view text) { return Json::String(text); }

Json EnvOf(const StringMap& variables) {
  Json env = Json::MakeArray();
  for (const auto& [name, value] : variables)
    env.Append(Json::MakeObject({{"name", Text(name)}, {"value", Text(value)}}));
  return env;
}

// Collects the volumes of the pod together with their mounts in the driver's containers.
class Volumes {
 public:
  void AddHostPath(std::string_view name, std::string_view path, std::string_view type,
                   bool bidirectional = false, std::string_view mount_path = "") {
    Json source = Json::MakeObject({{"path", Text(path)}});
    if (!type.empty()) source.Set("type", Text(type));
    volumes_.Append(Json::MakeObject({{"name", Text(name)}, {"hostPath", std::move(source)}}));
    Json mount = Json::MakeObject(
        {{"name", Text(name)}, {"mountPath", Text(mount_path.empty() ? path : mount_path)}});
    if (bidirectional) mount.Set("mountPropagation", Text("Bidirectional"));
    mounts_.Append(std::move(mount));
  }
  void AddConfigMap(std::string_view name, const std::string& config_map, std::string_view at) {
    if (config_map.empty()) return;
    volumes_.Append(Json::MakeObject(
        {{"name", Text(name)}, {"configMap", Json::MakeObject({{"name", Text(config_map)}})}}));
    mounts_.Append(Json::MakeObject(
        {{"name", Text(name)}, {"mountPath", Text(at)}, {"readOnly", Json::Bool(true)}}));
  }
  const Json& volumes() const { return volumes_; }
  const Json& mounts() const { return mounts_; }

 private:
  Json volumes_ = Json::MakeArray();
  Json mounts_ = Json::MakeArray();
};

Volumes VolumesOf(const DriverSpec& spec, const DriverHost& host) {
  Volumes volumes;
  volumes.AddHostPath("run-nvidia", "/run/nvidia", "DirectoryOrCreate",
                      /*bidirectional=*/true);
  volumes.AddHostPath("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager", "DirectoryOrCreate");
  volumes.AddHostPath("run-nvidia-topologyd", "/run/nvidia-topologyd", "DirectoryOrCreate");
  volumes.AddHostPath("var-log", "/var/log", "");
  volumes.AddHostPath("dev-log", "/dev/log", "");
  volumes.AddHostPath("host-os-release", "/etc/os-release", "", /*bidirectional=*/false,
                      "/host-etc/os-release");
  volumes.AddHostPath("mlnx-ofed-usr-src", "/run/mellanox/drivers/usr/src", "DirectoryOrCreate");
  volumes.AddHostPath("run-mellanox-drivers", "/run/mellanox/drivers", "DirectoryOrCreate");
  volumes.AddHostPath("firmware-search-path", "/sys/module/firmware_class/parameters/path", "");
  volumes.AddHostPath("nv-firmware", spec.install_dir + "/lib/firmware", "DirectoryOrCreate",
                      /*bidirectional=*/false, "/lib/firmware");
  volumes.AddHostPath("run-tessera", "/run/tessera", "DirectoryOrCreate");
  const KnownSystem* system = FindSystem(host.os_id);
  volumes.AddConfigMap("repo-config", spec.repo_config,
                       system != nullptr ? system->package_sources : "/etc/yum.repos.d");
  volumes.AddConfigMap("cert-config", spec.cert_config, "/usr/local/share/ca-certificates");
  volumes.AddConfigMap("module-config", spec.module_config, "/drivers");
  return volumes;
}

StringMap DriverEnv(const DriverSpec& spec) {
  StringMap env = spec.env;
  env["KERNEL_MODULE_TYPE"] = ModuleName(spec.kernel_module);
  // Images of drivers before 570 know only this variable.
  if (spec.kernel_module == KernelModule::kOpen) env["OPEN_KERNEL_MODULES_ENABLED"] = "true";
  if (spec.rdma) env["GPU_DIRECT_RDMA_ENABLED"] = "true";
  if (spec.rdma && spec.use_host_mofed) env["USE_HOST_MOFED"] = "true";
  if (spec.gds) env["GDS_ENABLED"] = "true";
  if (spec.gdrcopy) env["GDRCOPY_ENABLED"] = "true";
  return env;
}

Json Command(std::string_view script) { return Json::Strings({"sh", "-c", std::string(script)}); }

Json Privileged() { return Json::MakeObject({{"privileged", Json::Bool(true)}}); }

Json ContainerOf(std::string_view name, const std::string& image, const DriverSpec& spec,
                 const Volumes& volumes) {
  return Json::MakeObject({{"name", Text(name)},
                           {"image", Text(image)},
                           {"imagePullPolicy", Text(spec.pull_policy)},
                           {"securityContext", Privileged()},
                           {"volumeMounts", volumes.mounts()}});
}

// While the file release-driver exists, the agent keeps the driver closed. The script gives the
// agent 6 seconds to close the driver, and does not check whether the node has an agent.
constexpr std::string_view kReleaseScript =
    "touch /run/tessera/release-driver; rm -f /run/nvidia/validations/.driver-ctr-ready; sleep 6";
// Like NVIDIA's probe: once the driver answers, creates the file for which NVIDIA's components
// wait.
constexpr std::string_view kProbeScript =
    "nvidia-smi && mkdir -p /run/nvidia/validations && touch "
    "/run/nvidia/validations/.driver-ctr-ready && rm -f /run/tessera/release-driver";
constexpr std::string_view kStopScript = "rm -f /run/nvidia/validations/.driver-ctr-ready";

Json MainContainer(const DriverSpec& spec, const std::string& image, const std::string& revision,
                   const Volumes& volumes) {
  Json main = ContainerOf("nvidia-driver-ctr", image, spec, volumes);
  StringMap env = DriverEnv(spec);
  env["DRIVER_CONFIG_DIGEST"] = revision;
  Json args = Json::Strings({"init"});
  for (const std::string& arg : spec.args) args.Append(Text(arg));
  main.Set("command", Json::Strings({"nvidia-driver"}));
  main.Set("args", std::move(args));
  main.Set("env", EnvOf(env));
  if (!spec.resources.members().empty()) main.Set("resources", spec.resources);
  // Compiling the modules takes minutes, so the container fails only after 20 minutes.
  main.Set("startupProbe",
           Json::MakeObject({{"exec", Json::MakeObject({{"command", Command(kProbeScript)}})},
                             {"initialDelaySeconds", Json::Int(5)},
                             {"periodSeconds", Json::Int(5)},
                             {"timeoutSeconds", Json::Int(60)},
                             {"failureThreshold", Json::Int(240)}}));
  main.Set(
      "lifecycle",
      Json::MakeObject(
          {{"preStop",
            Json::MakeObject({{"exec", Json::MakeObject({{"command", Command(kStopScript)}})}})}}));
  return main;
}

Json ManagerContainer(const DriverSpec& spec, const Volumes& volumes) {
  Json manager = ContainerOf("k8s-driver-manager", spec.manager_image, spec, volumes);
  // The operator has cordoned and drained the node. This container only unloads the modules.
  Json env = EnvOf({{"NVIDIA_VISIBLE_DEVICES", "void"},
                    {"ENABLE_GPU_POD_EVICTION", "false"},
                    {"ENABLE_AUTO_DRAIN", "false"},
                    {"OPERATOR_NAMESPACE", spec.ns}});
  env.Append(Json::MakeObject(
      {{"name", Text("NODE_NAME")},
       {"valueFrom",
        Json::MakeObject(
            {{"fieldRef", Json::MakeObject({{"fieldPath", Text("spec.nodeName")}})}})}}));
  manager.Set("command", Json::Strings({"driver-manager"}));
  manager.Set("args", Json::Strings({"uninstall_driver"}));
  manager.Set("env", std::move(env));
  return manager;
}

Json Containers(const DriverSpec& spec, const DriverHost& host, const std::string& image,
                const std::string& revision, const Volumes& volumes) {
  Json containers = Json::MakeArray({MainContainer(spec, image, revision, volumes)});
  const auto add = [&](std::string_view name, const std::string& from,
                       const std::vector<std::string>& command) {
    Json container = ContainerOf(name, from, spec, volumes);
    container.Set("command", Json::Strings(command));
    containers.Append(std::move(container));
  };
  if (spec.rdma) add("nvidia-peermem-ctr", image, {"nvidia-driver", "reload_nvidia_peermem"});
  const std::string tag = "-" + OsTag(host);
  if (spec.gds) add("nvidia-fs-ctr", spec.gds_image + tag, {"nvidia-gds-driver", "install"});
  if (spec.gdrcopy)
    add("nvidia-gdrcopy-ctr", spec.gdrcopy_image + tag, {"nvidia-gdrcopy-driver", "install"});
  return containers;
}

Json Tolerations(const DriverSpec& spec) {
  Json all = Json::MakeArray();
  // A node that joins with a startup taint keeps it until this pod runs.
  all.Append(Json::MakeObject({{"operator", Text("Exists")}, {"effect", Text("NoSchedule")}}));
  all.Append(Json::MakeObject({{"key", Text(names::kResourceGpu)}, {"operator", Text("Exists")}}));
  all.Append(Json::MakeObject({{"key", Text("CriticalAddonsOnly")}, {"operator", Text("Exists")}}));
  for (const Json& toleration : spec.tolerations.items()) all.Append(toleration);
  return all;
}

// Excludes nodes that a rollback has pinned: they belong to another DaemonSet.
Json PinAffinity() {
  const Json without_pin = Json::MakeObject(
      {{"key", Text(names::kLabelDriverRevision)}, {"operator", Text("DoesNotExist")}});
  const Json term = Json::MakeObject({{"matchExpressions", Json::MakeArray({without_pin})}});
  return Json::MakeObject(
      {{"nodeAffinity",
        Json::MakeObject({{"requiredDuringSchedulingIgnoredDuringExecution",
                           Json::MakeObject({{"nodeSelectorTerms", Json::MakeArray({term})}})}})}});
}

}  // namespace

Result<DriverHost> DriverHostOf(std::string_view os_image, std::string_view kernel) {
  for (const KnownSystem& system : kSystems) {
    if (!os_image.starts_with(system.os_image)) continue;
    return DriverHost{std::string(system.id), VersionIn(os_image.substr(system.os_image.size())),
                      std::string(kernel)};
  }
  return Error(Code::kUnimplemented,
               "NVIDIA has no driver image for \"{}\": install the driver on the host", os_image);
}

std::string OsTag(const DriverHost& host) {
  const KnownSystem* system = FindSystem(host.os_id);
  const bool major = system != nullptr && system->major_only;
  return host.os_id +
         (major ? host.os_version.substr(0, host.os_version.find('.')) : host.os_version);
}

Result<std::string> DriverImage(const DriverSpec& spec, const DriverHost& host) {
  RETURN_IF_ERROR(CheckDriver(spec));
  const std::string base = fmt::format("{}/{}", spec.repository, spec.image);
  if (spec.version.starts_with("sha256:")) return fmt::format("{}@{}", base, spec.version);
  if (!spec.precompiled) return fmt::format("{}:{}-{}", base, spec.version, OsTag(host));
  if (host.kernel.empty()) {
    return Error(Code::kInvalidArgument,
                 "driver \"{}\" with usePrecompiled needs the kernel of the node", spec.name);
  }
  return fmt::format("{}:{}-{}-{}", base, spec.version, host.kernel, OsTag(host));
}

std::string DriverPoolName(const DriverSpec& spec, const DriverHost& host) {
  std::string name = fmt::format("{}-{}", spec.name, OsTag(host));
  if (spec.precompiled) name += "-" + host.kernel;
  // The result is part of an object's name and the value of a label, which has at most 63
  // characters.
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    c = std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  constexpr size_t kMaxBytes = 30;
  if (name.size() > kMaxBytes)
    name = name.substr(0, kMaxBytes - 9) + "-" + DigestOf(name).substr(0, 8);
  return name;
}

Result<std::string> DriverRevision(const DriverSpec& spec, const DriverHost& host) {
  ASSIGN_OR_RETURN(const std::string image, DriverImage(spec, host));
  const Volumes volumes = VolumesOf(spec, host);
  std::string text =
      DriverPoolName(spec, host) + "\n" + image + "\n" + EnvOf(DriverEnv(spec)).Serialize();
  text += Json::Strings(spec.args).Serialize() + volumes.mounts().Serialize();
  text += volumes.volumes().Serialize() + spec.gds_image + "\n" + spec.gdrcopy_image;
  return DigestOf(text);
}

Result<Json> RenderDriverDaemonSet(const DriverSpec& spec, const DriverHost& host) {
  ASSIGN_OR_RETURN(const std::string image, DriverImage(spec, host));
  ASSIGN_OR_RETURN(const std::string revision, DriverRevision(spec, host));
  const Volumes volumes = VolumesOf(spec, host);
  const std::string pool = DriverPoolName(spec, host);
  const std::string name = "nvidia-driver-daemonset-" + pool;
  // The selector of a DaemonSet cannot be changed, so it contains only constant labels.
  const StringMap identity = {{"app", name},
                              {"app.kubernetes.io/component", "nvidia-driver"},
                              {"app.kubernetes.io/part-of", "tessera"}};
  StringMap pod_labels = identity;
  pod_labels[std::string(names::kLabelDriverRevision)] = revision;
  StringMap selector = spec.node_selector;
  selector[std::string(names::kLabelDeployPrefix) + "driver"] = "true";
  selector[std::string(names::kLabelDriverPool)] = pool;

  Json release = ContainerOf("release-driver", image, spec, volumes);
  release.Set("command", Command(kReleaseScript));
  Json pod = Json::MakeObject(
      {{"nodeSelector", Json::StringObject(selector)},
       {"tolerations", Tolerations(spec)},
       {"priorityClassName", Text(spec.priority_class)},
       {"hostPID", Json::Bool(true)},
       {"serviceAccountName", Text("tessera-driver")},
       {"affinity", PinAffinity()},
       {"initContainers", Json::MakeArray({std::move(release), ManagerContainer(spec, volumes)})},
       {"containers", Containers(spec, host, image, revision, volumes)},
       {"volumes", volumes.volumes()}});
  SetPullSecrets(pod, spec.pull_secrets);
  return Json::MakeObject(
      {{"apiVersion", Text("apps/v1")},
       {"kind", Text("DaemonSet")},
       {"metadata", Json::MakeObject({{"name", Text(name)},
                                      {"namespace", Text(spec.ns)},
                                      {"labels", Json::StringObject(identity)}})},
       {"spec",
        Json::MakeObject(
            {{"selector", Json::MakeObject({{"matchLabels", Json::StringObject({{"app", name}})}})},
             {"updateStrategy", Json::MakeObject({{"type", Text("OnDelete")}})},
             {"template",
              Json::MakeObject(
                  {{"metadata", Json::MakeObject({{"labels", Json::StringObject(pod_labels)}})},
                   {"spec", std::move(pod)}})}})}});
}

std::string DriverVersionOf(const Json& set) {
  const Json::Array& containers = ItemsAt(set, {"spec", "template", "spec", "containers"});
  if (containers.empty()) return "";
  const std::string image = TextAt(containers[0], {"image"});
  constexpr size_t kDigestLength = 7 + 12;  // "sha256:" and digits
  const size_t digest = image.find("@sha256:");
  if (digest != std::string::npos) return image.substr(digest + 1, kDigestLength);
  const size_t tag = image.rfind(':') + 1;
  return image.substr(tag, image.find('-', tag) - tag);
}

Json PinnedDriverDaemonSet(const Json& set) {
  Json pinned = set;
  Json& metadata = MemberAt(pinned, {"metadata"});
  Json& pod_labels = MemberAt(pinned, {"spec", "template", "metadata", "labels"});
  const std::string revision = pod_labels.StringAt(names::kLabelDriverRevision).value_or("");
  const Json name = Json::String(
      fmt::format("{}-{}", metadata.StringAt("name").value_or(""), revision.substr(0, 8)));
  metadata.Set("name", name);
  MemberAt(metadata, {"labels"}).Set("app", name);
  MemberAt(pinned, {"spec", "selector", "matchLabels"}).Set("app", name);
  pod_labels.Set("app", name);
  Json& pod = MemberAt(pinned, {"spec", "template", "spec"});
  pod.Erase("affinity");
  MemberAt(pod, {"nodeSelector"}).Set(names::kLabelDriverRevision, Json::String(revision));
  return pinned;
}

}  // namespace tessera::components
