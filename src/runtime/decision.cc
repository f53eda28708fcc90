// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/decision.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "api/names.h"
#include "src/base/file.h"
#include "src/grant/client.h"
#include "src/runtime/env_protocol.h"
#include "src/runtime/gpu_models.h"
#include "src/runtime/identity.h"
#include "src/runtime/requirements.h"

namespace tessera::runtime {
namespace {

using oci::Capabilities;
using oci::ConfigDocument;
using oci::DeviceNode;

// One GPU to give: where its node is, and what is known of it.
struct ChosenGpu {
  std::string uuid;
  std::string path;  // in the container
  std::string host_path;
  std::optional<std::pair<uint32_t, uint32_t>> expected;  // granted major and minor
};

struct Choice {
  std::vector<ChosenGpu> gpus;
  std::string driver_root;
  std::string dev_root;
  std::vector<oci::Mount> mounts;
  std::vector<std::pair<std::string, std::string>> env;
  std::string limits_dir;  // empty: no limits
};

Result<DeviceNode> LookAtGpu(const ChosenGpu& gpu) {
  Result<DeviceNode> node = oci::ReadDeviceNode(gpu.host_path, gpu.path);
  if (!node.ok()) {
    return Error(node.status().code(),
                 "GPU {}: {}: load the driver (nvidia-modprobe), or let tessera-agent create its "
                 "nodes (--create-device-nodes)",
                 gpu.uuid, node.status().message());
  }
  if (gpu.expected && *gpu.expected != std::pair(node->major_number, node->minor_number)) {
    return Error(Code::kFailedPrecondition,
                 "GPU {}: {} is {}:{}, but it was granted as {}:{}: the driver was reloaded; "
                 "restart tessera-agent on this node",
                 gpu.uuid, gpu.host_path, node->major_number, node->minor_number,
                 gpu.expected->first, gpu.expected->second);
  }
  return node;
}

// Of the granted GPUs alone. Programs without a screen do without them.
void AddDrmNodes(const Choice& choice, std::vector<DeviceNode>* nodes) {
  for (const oci::ProcGpu& gpu : oci::ListGpus(choice.driver_root).value_or({})) {
    if (std::ranges::find(choice.gpus, gpu.uuid, &ChosenGpu::uuid) == choice.gpus.end()) continue;
    for (const std::string& name : oci::DrmNodes(choice.driver_root, gpu.bus_id)) {
      const std::string path = "/dev/" + name;
      Result<DeviceNode> node = oci::ReadDeviceNode(JoinPath(choice.dev_root, path), path);
      if (node.ok()) nodes->push_back(std::move(*node));
    }
  }
}

Result<std::vector<DeviceNode>> CollectNodes(const Choice& choice, Capabilities capabilities) {
  std::vector<DeviceNode> nodes;
  for (const ChosenGpu& gpu : choice.gpus) {
    ASSIGN_OR_RETURN(DeviceNode node, LookAtGpu(gpu));
    nodes.push_back(std::move(node));
  }
  if (nodes.empty()) return nodes;
  if (capabilities & (oci::kGraphics | oci::kDisplay)) AddDrmNodes(choice, &nodes);
  for (const oci::ControlNode& control : oci::ControlNodes()) {
    if (!(control.needed_by & capabilities)) continue;
    const std::string path = fmt::format("/dev/{}", control.name);
    Result<DeviceNode> node = oci::ReadDeviceNode(JoinPath(choice.dev_root, path), path);
    if (node.ok()) {
      nodes.push_back(std::move(*node));
    } else if (control.required_by & oci::RequiredOf(capabilities)) {
      return Error(node.status().code(), "{}: {}", node.status().message(), control.advice);
    }
  }
  return nodes;
}

// GPUs of the node that are not in `given`; empty unless the container may open any device.
std::vector<DeviceNode> CollectWithheld(const ConfigDocument& document,
                                        const std::string& driver_root, const std::string& dev_root,
                                        const std::vector<DeviceNode>& given) {
  std::vector<DeviceNode> withheld;
  if (!document.AllowsAllDevices()) return withheld;
  for (const oci::ProcGpu& gpu : oci::ListGpus(driver_root).value_or({})) {
    if (!gpu.minor) continue;
    const std::string path = fmt::format("/dev/nvidia{}", *gpu.minor);
    Result<DeviceNode> node = oci::ReadDeviceNode(JoinPath(dev_root, path), path);
    if (!node.ok()) continue;
    const bool is_given = std::ranges::any_of(given, [&](const DeviceNode& other) {
      return other.major_number == node->major_number && other.minor_number == node->minor_number;
    });
    if (!is_given) withheld.push_back(std::move(*node));
  }
  return withheld;
}

Facts CollectFacts(const Choice& choice, const oci::DriverFiles& driver) {
  Facts facts{.cuda = CudaOfDriver(driver.version), .driver = driver.version};
  const auto known = oci::ListGpus(choice.driver_root);
  for (const ChosenGpu& gpu : choice.gpus) {
    GpuFacts fact{gpu.uuid, "", "unknown"};
    if (known.ok()) {
      const auto found = std::find_if(known->begin(), known->end(),
                                      [&](const auto& one) { return one.uuid == gpu.uuid; });
      if (found != known->end()) {
        fact.arch = ArchOfModel(found->model);
        fact.brand = BrandOfModel(found->model);
      }
    }
    facts.gpus.push_back(std::move(fact));
  }
  return facts;
}

Result<oci::Limiter> FindLimiter(const std::string& limits_dir) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::FromErrno("/proc/self/exe", error.value());
  oci::Limiter limiter{oci::LimiterDirBeside(program), limits_dir};
  for (const oci::LimiterLibrary& library : oci::kLimiterLibraries) {
    for (const std::string_view name : {library.in_dev, library.in_run}) {
      const std::string path = JoinPath(limiter.library_dir, name);
      if (PathExists(path)) continue;
      return Error(
          Code::kFailedPrecondition,
          "{} is missing, so the container could not be held to its share of the GPU: install it "
          "again (tessera-runtime configure --install)",
          path);
    }
  }
  return limiter;
}

Result<Decision> DecideWith(const ConfigDocument& document, const Options& options, Choice choice,
                            std::string reason) {
  Decision decision{std::move(reason), {}, {}};
  ASSIGN_OR_RETURN(const Capabilities capabilities, ReadCapabilities(document));
  oci::Injection injection;
  ASSIGN_OR_RETURN(injection.devices, CollectNodes(choice, capabilities));
  injection.withheld =
      CollectWithheld(document, choice.driver_root, choice.dev_root, injection.devices);
  ASSIGN_OR_RETURN(injection.driver, oci::FindDriver(choice.driver_root, capabilities));
  const auto requirements = ReadRequirements(document);
  if (!requirements.empty()) {
    RETURN_IF_ERROR(CheckRequirements(requirements, CollectFacts(choice, injection.driver)));
  }
  ASSIGN_OR_RETURN(decision.placement, oci::FindInjectionTarget(document, options.driver_tree_dir));
  injection.mounts = std::move(choice.mounts);
  injection.env = std::move(choice.env);
  if (!choice.limits_dir.empty()) {
    ASSIGN_OR_RETURN(injection.limiter, FindLimiter(choice.limits_dir));
  }
  injection.tree_dir = options.driver_tree_dir;
  decision.injection = std::move(injection);
  return decision;
}

std::string UuidList(const std::vector<ChosenGpu>& gpus) {
  std::string list;
  for (const ChosenGpu& gpu : gpus) list += (list.empty() ? "" : ",") + gpu.uuid;
  return list;
}

Choice FromGrant(grant::Grant&& grant, const Options& options) {
  Choice choice;
  choice.driver_root = grant.driver_root.empty() ? options.driver_root : grant.driver_root;
  choice.dev_root = grant.dev_root.empty() ? options.dev_root : grant.dev_root;
  for (grant::GrantedDevice& device : grant.devices) {
    ChosenGpu gpu{std::move(device.uuid), std::move(device.path), std::move(device.host_path), {}};
    if (gpu.path.empty()) gpu.path = fmt::format("/dev/nvidia{}", device.minor);
    if (gpu.host_path.empty()) gpu.host_path = JoinPath(choice.dev_root, gpu.path);
    if (device.major_number != 0) gpu.expected = {device.major_number, device.minor_number};
    choice.gpus.push_back(std::move(gpu));
  }
  choice.limits_dir = std::move(grant.limits_dir);
  for (grant::GrantedMount& mount : grant.mounts) {
    choice.mounts.push_back({mount.container, "bind", mount.host, std::move(mount.options)});
  }
  choice.env.emplace_back(names::kEnvVisibleDevices,
                          choice.gpus.empty() ? "void" : UuidList(choice.gpus));
  for (auto& [name, value] : grant.env) choice.env.emplace_back(name, value);
  return choice;
}

// gpushare's device plugin gave no tokens. The agent knows which of its containers it found on the
// node; whoever else writes such a variable gets nothing by it.
bool MayBeOfGpushare(const ConfigDocument& document) {
  return document.env().Get(names::kAnnotationGpuMemIndex).has_value();
}

// Containers that manage GPUs, or the node, are privileged and have no grant.
Decision WithoutGrant(const ConfigDocument& document, const Identity& identity,
                      const Options& options) {
  Decision nothing{"in Kubernetes, without a grant: no GPU, whatever the environment says", {}, {}};
  if (std::ranges::count(options.privileged_namespaces, identity.pod_namespace) != 0)
    return nothing;
  nothing.withheld = CollectWithheld(document, options.driver_root, options.dev_root, {});
  return nothing;
}

Result<Decision> DecideInKubernetes(const ConfigDocument& document, const Identity& identity,
                                    const Options& options) {
  if (identity.is_sandbox) return Decision{"the pod's sandbox", {}, {}};
  grant::Request request{.pod_uid = identity.pod_uid,
                         .pod_namespace = identity.pod_namespace,
                         .pod_name = identity.pod_name,
                         .container = identity.container};
  for (auto& [name, value] : document.env().GetPrefix(names::kEnvGrantPrefix)) {
    request.tokens.push_back({name, value});
  }
  for (auto& [name, value] : document.env().GetPrefix(grant::kLimitVariablePrefix)) {
    const bool fits = name.size() <= grant::kMaxNameLength &&
                      value.size() <= grant::kMaxNameLength &&
                      request.variables.size() < grant::kMaxVariables;
    if (fits) request.variables[name] = value;
  }
  if (request.tokens.empty() && !MayBeOfGpushare(document)) {
    return WithoutGrant(document, identity, options);
  }
  const std::string who = fmt::format("pod {}/{} ({}), container {}", identity.pod_namespace,
                                      identity.pod_name, identity.pod_uid, identity.container);
  if (identity.pod_uid.empty() || identity.container.empty()) {
    return Error(Code::kFailedPrecondition,
                 "the engine does not say which pod and container this is, so its grant cannot be "
                 "asked for: use containerd 1.6 or CRI-O 1.20 or newer, or set "
                 "binding: allocate in tessera-agent");
  }
  Result<grant::Grant> grant =
      grant::RequestGrant(options.grant_socket, request, options.grant_timeout);
  if (request.tokens.empty() && grant.status().code() == Code::kNotFound) {
    return WithoutGrant(document, identity, options);
  }
  if (!grant.ok()) return grant.status().Annotate(who);
  Choice choice = FromGrant(std::move(*grant), options);
  std::string reason = fmt::format("granted to {}: {}", who, UuidList(choice.gpus));
  return DecideWith(document, options, std::move(choice), std::move(reason));
}

Result<Decision> DecideByEnvironment(const ConfigDocument& document, const Options& options) {
  using Kind = VisibleDevices::Kind;
  const VisibleDevices visible = ReadVisibleDevices(document);
  if (visible.kind == Kind::kNothing) return Decision{"no GPU is asked for", {}, {}};
  if (!options.accept_visible_devices_envvar) {
    return Decision{
        "NVIDIA_VISIBLE_DEVICES is not accepted (accept-visible-devices-envvar)", {}, {}};
  }
  Choice choice{.driver_root = options.driver_root, .dev_root = options.dev_root};
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
      const std::string path = fmt::format("/dev/nvidia{}", *gpu.minor);
      choice.gpus.push_back({gpu.uuid, path, JoinPath(options.dev_root, path), {}});
    }
  }
  // A runtime inside this container must not give what this one was not given.
  choice.env.emplace_back(names::kEnvVisibleDevices,
                          choice.gpus.empty() ? "none" : UuidList(choice.gpus));
  std::string reason = fmt::format("asked for by NVIDIA_VISIBLE_DEVICES: {}",
                                   choice.gpus.empty() ? "no GPU" : UuidList(choice.gpus));
  return DecideWith(document, options, std::move(choice), std::move(reason));
}

}  // namespace

bool AsksForGpus(const ConfigDocument& document) {
  if (const auto identity = FindIdentity(document)) {
    return !identity->is_sandbox &&
           (!document.env().GetPrefix(names::kEnvGrantPrefix).empty() || MayBeOfGpushare(document));
  }
  return ReadVisibleDevices(document).kind != VisibleDevices::Kind::kNothing;
}

Result<Decision> Decide(const ConfigDocument& document, const Options& options) {
  if (const auto identity = FindIdentity(document)) {
    return DecideInKubernetes(document, *identity, options);
  }
  return DecideByEnvironment(document, options);
}

}  // namespace tessera::runtime
