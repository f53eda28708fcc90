// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/decision.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <utility>
#include <vector>

#include "api/names.h"
#include "src/base/file.h"
#include "src/grant/client.h"
#include "src/grant/message.h"
#include "src/grant/pod_cgroup.h"
#include "src/oci/dmem.h"
#include "src/runtime/env_protocol.h"
#include "src/runtime/requirements.h"

namespace tessera::runtime {
namespace {

using grant::Grant;
using grant::GrantedDevice;
using oci::Capabilities;
using oci::ConfigDocument;
using oci::DeviceNode;

std::string GpuPath(int minor) { return fmt::format("/dev/nvidia{}", minor); }

Result<DeviceNode> FindNode(const std::string& dev_root, const std::string& path) {
  return oci::ReadDeviceNode(JoinPath(dev_root, path), path);
}

Result<DeviceNode> FindGpuNode(const GrantedDevice& gpu) {
  Result<DeviceNode> node = oci::ReadDeviceNode(gpu.host_path, gpu.path);
  if (!node.ok()) {
    return Error(node.status().code(),
                 "GPU {}: {}: load the driver (nvidia-modprobe), or let tessera-agent create its "
                 "nodes (--create-device-nodes)",
                 gpu.uuid, node.status().message());
  }
  // 0:0: the agent could not stat the node.
  if (gpu.major_number != 0 &&
      (gpu.major_number != node->major_number || gpu.minor_number != node->minor_number)) {
    return Error(Code::kFailedPrecondition,
                 "GPU {}: {} is {}:{}, but it was granted as {}:{}: the driver was reloaded; "
                 "restart tessera-agent on this node",
                 gpu.uuid, gpu.host_path, node->major_number, node->minor_number, gpu.major_number,
                 gpu.minor_number);
  }
  return node;
}

// Adds only the nodes of selected GPUs. A missing node is not an error: only graphics programs need
// DRM nodes.
void AddDrmNodes(const Grant& grant, std::vector<DeviceNode>* nodes) {
  for (const oci::ProcGpu& gpu : oci::ListGpus(grant.driver_root).value_or({})) {
    if (std::ranges::find(grant.devices, gpu.uuid, &GrantedDevice::uuid) == grant.devices.end())
      continue;
    for (const std::string& name : oci::DrmNodes(grant.driver_root, gpu.bus_id)) {
      Result<DeviceNode> node = FindNode(grant.dev_root, "/dev/" + name);
      if (node.ok()) nodes->push_back(std::move(*node));
    }
  }
}

Result<std::vector<DeviceNode>> CollectNodes(const Grant& grant, Capabilities capabilities) {
  std::vector<DeviceNode> nodes;
  for (const GrantedDevice& gpu : grant.devices) {
    ASSIGN_OR_RETURN(DeviceNode node, FindGpuNode(gpu));
    nodes.push_back(std::move(node));
  }
  if (nodes.empty()) return nodes;
  if (capabilities & (oci::kGraphics | oci::kDisplay)) AddDrmNodes(grant, &nodes);
  for (const oci::ControlNode& control : oci::ControlNodes()) {
    if (!(control.used_by & capabilities)) continue;
    Result<DeviceNode> node = FindNode(grant.dev_root, fmt::format("/dev/{}", control.name));
    if (node.ok()) {
      nodes.push_back(std::move(*node));
    } else if (control.required_by & oci::RequiredCapabilities(capabilities)) {
      return Error(node.status().code(), "{}: {}", node.status().message(), control.advice);
    }
  }
  return nodes;
}

// The node's GPUs that are not in `granted`. Empty unless the container may open every GPU: in all
// other containers the engine's first rule denies each GPU that no later rule names.
std::vector<DeviceNode> CollectDenied(const ConfigDocument& document,
                                      const std::string& driver_root, const std::string& dev_root,
                                      const std::vector<DeviceNode>& granted) {
  std::vector<DeviceNode> denied;
  if (!document.AllowsEveryGpu()) return denied;
  for (const oci::ProcGpu& gpu : oci::ListGpus(driver_root).value_or({})) {
    if (!gpu.minor) continue;
    Result<DeviceNode> node = FindNode(dev_root, GpuPath(*gpu.minor));
    if (!node.ok()) continue;
    const bool is_granted = std::ranges::any_of(granted, [&](const DeviceNode& other) {
      return other.major_number == node->major_number && other.minor_number == node->minor_number;
    });
    if (!is_granted) denied.push_back(std::move(*node));
  }
  return denied;
}

NodeFacts CollectNodeFacts(const Grant& grant, const oci::DriverFiles& driver) {
  NodeFacts facts{.cuda = CudaOfDriver(driver.version), .driver = driver.version};
  const auto node_gpus = oci::ListGpus(grant.driver_root).value_or({});
  for (const GrantedDevice& gpu : grant.devices) {
    GpuProperties properties{gpu.uuid, "", "unknown"};
    const auto found = std::ranges::find(node_gpus, gpu.uuid, &oci::ProcGpu::uuid);
    if (found != node_gpus.end()) {
      properties.arch = ArchOfModel(found->model);
      properties.brand = BrandOfModel(found->model);
    }
    facts.gpus.push_back(std::move(properties));
  }
  return facts;
}

// The value of the cgroup file dmem.max for a container with shares of GPUs. Empty if the kernel or
// the driver does not support dmem.
std::string FindDmemMax(const Grant& grant, const std::string& cgroup_root) {
  const auto regions = oci::ReadDmemRegions(cgroup_root);
  if (regions.empty()) return "";
  std::vector<oci::DmemShare> shares;
  for (const oci::ProcGpu& gpu : oci::ListGpus(grant.driver_root).value_or({})) {
    const auto granted = std::ranges::find(grant.devices, gpu.uuid, &GrantedDevice::uuid);
    if (granted != grant.devices.end()) shares.push_back({gpu.bus_id, Bytes(granted->bytes)});
  }
  return oci::DmemMaxValue(regions, shares);
}

Result<oci::Limiter> FindLimiter(const std::string& limits_dir) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::FromErrno("/proc/self/exe", error.value());
  oci::Limiter limiter{oci::LimiterDirBeside(program), limits_dir};
  for (const oci::LimiterLibrary& library : oci::kLimiterLibraries) {
    for (const std::string_view name : {library.file_for_dev, library.file_for_run}) {
      const std::string path = JoinPath(limiter.library_dir, name);
      if (PathExists(path)) continue;
      return Error(Code::kFailedPrecondition,
                   "{} is missing, so the container's GPU share cannot be enforced: install it "
                   "again (tessera-runtime configure --install)",
                   path);
    }
  }
  return limiter;
}

// `no_gpu_word` is the value of NVIDIA_VISIBLE_DEVICES if the grant has no GPU. Otherwise the value
// is the UUIDs, also for "all", so that a container engine inside this container (Docker in Docker)
// cannot give its containers more GPUs than this container has.
Result<Decision> MakeDecision(const ConfigDocument& document, const Options& options,
                              const Grant& grant, std::string_view no_gpu_word,
                              std::string reason) {
  Decision decision{std::move(reason), {}, {}};
  ASSIGN_OR_RETURN(const Capabilities capabilities, ReadCapabilities(document));
  oci::Injection injection;
  ASSIGN_OR_RETURN(injection.devices, CollectNodes(grant, capabilities));
  injection.denied_devices =
      CollectDenied(document, grant.driver_root, grant.dev_root, injection.devices);
  ASSIGN_OR_RETURN(injection.driver, oci::FindDriver(grant.driver_root, capabilities));
  const auto requirements = ReadRequirements(document);
  if (!requirements.empty()) {
    RETURN_IF_ERROR(CheckRequirements(requirements, CollectNodeFacts(grant, injection.driver)));
  }
  ASSIGN_OR_RETURN(decision.target, oci::FindInjectionTarget(document, options.driver_tree_dir));
  for (const grant::GrantedMount& mount : grant.mounts) {
    injection.mounts.push_back({mount.container, "bind", mount.host, mount.options});
  }
  std::string visible = grant::UuidsOf(grant);
  if (grant.devices.empty()) visible = no_gpu_word;
  injection.env.emplace_back(names::kEnvVisibleDevices, std::move(visible));
  injection.env.insert(injection.env.end(), grant.env.begin(), grant.env.end());
  if (!grant.limits_dir.empty()) {
    ASSIGN_OR_RETURN(injection.limiter, FindLimiter(grant.limits_dir));
    injection.dmem_max = FindDmemMax(grant, options.cgroup_root);
  }
  injection.tree_dir = options.driver_tree_dir;
  decision.injection = std::move(injection);
  return decision;
}

// gpushare's device plugin gives no tokens, only this variable. The agent knows the node's
// containers of gpushare, and answers NOT_FOUND for any other container that has the variable.
bool HasGpushareVariable(const ConfigDocument& document) {
  return document.env().Get(names::kEnvGpuMemIndex).has_value();
}

// Injects nothing. Denies the node's GPUs to a container that may open every GPU, except in
// `privileged_namespaces`.
Decision DecideWithoutGrant(const ConfigDocument& document, const ContainerIdentity& identity,
                            const Options& options) {
  Decision no_gpu{
      "no GPU: a container in Kubernetes needs a grant; NVIDIA_VISIBLE_DEVICES is ignored", {}, {}};
  if (std::ranges::count(options.privileged_namespaces, identity.pod_namespace) != 0) return no_gpu;
  no_gpu.denied_gpus = CollectDenied(document, options.driver_root, options.dev_root, {});
  return no_gpu;
}

Result<Decision> DecideInKubernetes(const ConfigDocument& document,
                                    const ContainerIdentity& identity, const Options& options) {
  if (identity.is_sandbox) return Decision{"no GPU: the container is the pod's sandbox", {}, {}};
  grant::GrantRequest request{.pod_uid = identity.pod_uid,
                              .pod_namespace = identity.pod_namespace,
                              .pod_name = identity.pod_name,
                              .container = identity.container};
  for (auto& [name, value] : document.env().FindByPrefix(names::kEnvGrantPrefix)) {
    request.tokens.push_back({name, value});
  }
  for (auto& [name, value] : document.env().FindByPrefix(grant::kLimitVariablePrefix)) {
    const bool fits = name.size() <= grant::kMaxNameLength &&
                      value.size() <= grant::kMaxNameLength &&
                      request.variables.size() < grant::kMaxVariables;
    if (fits) request.variables[name] = value;
  }
  if (request.tokens.empty() && !HasGpushareVariable(document)) {
    return DecideWithoutGrant(document, identity, options);
  }
  const std::string container_description =
      fmt::format("pod {}/{} ({}), container {}", identity.pod_namespace, identity.pod_name,
                  identity.pod_uid, identity.container);
  if (identity.pod_uid.empty() || identity.container.empty()) {
    return Error(Code::kFailedPrecondition,
                 "cannot request the grant: the engine does not name the pod and container: "
                 "use containerd 1.6 or CRI-O 1.20 or newer, or start "
                 "tessera-agent with --binding=allocate");
  }
  Result<Grant> grant = grant::RequestGrant(options.grant_socket, request, options.grant_timeout);
  if (request.tokens.empty() && grant.status().code() == Code::kNotFound) {
    return DecideWithoutGrant(document, identity, options);
  }
  if (!grant.ok()) return grant.status().Annotate(container_description);
  if (grant->driver_root.empty()) grant->driver_root = options.driver_root;
  if (grant->dev_root.empty()) grant->dev_root = options.dev_root;
  return MakeDecision(
      document, options, *grant, "void",
      fmt::format("granted to {}: {}", container_description, grant::UuidsOf(*grant)));
}

Result<Decision> DecideByEnvironment(const ConfigDocument& document, const Options& options) {
  using Kind = VisibleDevices::Kind;
  const VisibleDevices visible = ReadVisibleDevices(document);
  if (visible.kind == Kind::kNothing) return Decision{"no GPU requested", {}, {}};
  if (!options.accept_visible_devices_envvar) {
    return Decision{
        "NVIDIA_VISIBLE_DEVICES is not accepted (accept-visible-devices-envvar)", {}, {}};
  }
  Grant grant{.driver_root = options.driver_root, .dev_root = options.dev_root};
  if (visible.kind != Kind::kDriverOnly) {
    ASSIGN_OR_RETURN(const auto gpus, oci::ListGpus(options.driver_root));
    ASSIGN_OR_RETURN(const auto selected, SelectGpus(visible, gpus));
    for (const oci::ProcGpu& gpu : selected) {
      if (!gpu.minor) {
        return Error(Code::kFailedPrecondition,
                     "{}: the driver names no device minor for this GPU: run \"nvidia-smi\" on the "
                     "host, or leave the GPU out of {}",
                     gpu.bus_id, names::kEnvVisibleDevices);
      }
      const std::string path = GpuPath(*gpu.minor);
      grant.devices.push_back({gpu.uuid, *gpu.minor, path, JoinPath(options.dev_root, path)});
    }
  }
  std::string reason = fmt::format("requested by NVIDIA_VISIBLE_DEVICES: {}",
                                   grant.devices.empty() ? "no GPU" : grant::UuidsOf(grant));
  return MakeDecision(document, options, grant, "none", std::move(reason));
}

std::string FirstAnnotation(const oci::ConfigDocument& document,
                            std::initializer_list<std::string_view> annotations) {
  for (const std::string_view name : annotations) {
    if (auto value = document.Annotation(name); value && !value->empty()) return *value;
  }
  return {};
}

}  // namespace

bool RequestsGpus(const ConfigDocument& document) {
  if (const auto identity = FindContainerIdentity(document)) {
    return !identity->is_sandbox && (!document.env().FindByPrefix(names::kEnvGrantPrefix).empty() ||
                                     HasGpushareVariable(document));
  }
  return ReadVisibleDevices(document).kind != VisibleDevices::Kind::kNothing;
}

Result<Decision> Decide(const ConfigDocument& document, const Options& options) {
  if (const auto identity = FindContainerIdentity(document)) {
    return DecideInKubernetes(document, *identity, options);
  }
  return DecideByEnvironment(document, options);
}

std::optional<ContainerIdentity> FindContainerIdentity(const oci::ConfigDocument& document) {
  const std::string path = document.CgroupsPath();
  const bool is_of_kubelet = path.find("kubepods") != std::string::npos;
  // podman writes these two annotations of CRI-O outside Kubernetes. CRI-O in Kubernetes writes
  // further annotations with this prefix.
  const bool annotated = document.HasAnnotationWithPrefix(
      "io.kubernetes.", {"io.kubernetes.cri-o.Created", "io.kubernetes.cri-o.TTY"});
  if (!annotated && !is_of_kubelet) return std::nullopt;
  ContainerIdentity identity;
  const std::string type =
      FirstAnnotation(document, {names::kCriContainerType, names::kCrioContainerType});
  identity.is_sandbox = type == "sandbox";
  identity.pod_uid = Uid(FirstAnnotation(document, {names::kCriSandboxUid, names::kCrioPodUid}));
  if (identity.pod_uid.empty() && is_of_kubelet) {
    if (auto cgroup = grant::ParsePodCgroup(path)) identity.pod_uid = std::move(cgroup->pod_uid);
  }
  identity.pod_namespace =
      FirstAnnotation(document, {names::kCriSandboxNamespace, names::kCrioPodNamespace});
  identity.pod_name = FirstAnnotation(document, {names::kCriSandboxName, names::kCrioPodName});
  identity.container =
      FirstAnnotation(document, {names::kCriContainerName, names::kCrioContainerName});
  return identity;
}

}  // namespace tessera::runtime
