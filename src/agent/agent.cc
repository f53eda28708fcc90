// SPDX-License-Identifier: Apache-2.0
#include "src/agent/agent.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "src/agent/device_nodes.h"
#include "src/agent/dir_watcher.h"
#include "src/agent/grants.h"
#include "src/agent/kube_node_api.h"
#include "src/agent/metrics.h"
#include "src/agent/node_publisher.h"
#include "src/agent/plugin.h"
#include "src/agent/status_page.h"
#include "src/agent/version.h"
#include "src/base/log.h"
#include "src/gpu/nvml_library.h"

namespace tessera::agent {
namespace {

// Device nodes may be what a driver that reports nothing is waiting for.
constexpr Duration kDeviceNodeRetry = std::chrono::seconds(5);

}  // namespace

class Agent::Impl {
 public:
  Impl(TaskRunner* runner, net::IoThread* io, AgentOptions options)
      : runner_(runner), io_(io), options_(std::move(options)) {}

  // The kubelet's streams end first: it shall not see a plugin whose GPUs nobody watches.
  ~Impl() { plugin_.reset(); }

  Status Start();
  void Refresh() {
    if (inventory_) inventory_->PollNow();
  }

 private:
  void StartPlugin();
  void StartInventory();
  Status StartGrants();
  Status StartStatusPage();
  void StartPublisher();
  void StartDeviceNodes();
  void MakeDeviceNodes();
  void RetryDeviceNodes();
  void OnInventory(const gpu::InventorySnapshot& snapshot);
  void LogChanges(const device::NodeInventory& now);
  AgentStatus CurrentStatus() const;

  TaskRunner* const runner_;
  net::IoThread* const io_;
  const AgentOptions options_;

  AgentMetrics metrics_;
  DeviceSetHolder devices_;
  std::optional<grant::TokenSealer> sealer_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<Grants> grants_;
  std::unique_ptr<KubeNodeApi> node_api_;
  std::unique_ptr<NodePublisher> publisher_;
  std::unique_ptr<Plugin> plugin_;
  std::unique_ptr<DirWatcher> node_watcher_;
  std::unique_ptr<gpu::ThreadCaller> caller_;
  std::unique_ptr<gpu::Inventory> inventory_;
  std::unique_ptr<StatusPage> status_page_;
  std::string last_node_problem_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

Status Agent::Impl::Start() {
  RETURN_IF_ERROR(MakeDirs(options_.state_dir, 0700));
  ASSIGN_OR_RETURN(const DirFd state, DirFd::Open(options_.state_dir));
  ASSIGN_OR_RETURN(sealer_, grant::TokenSealer::Load(state, std::string(Grants::kKeyName)));
  AllocationOptions allocation;
  allocation.resource = options_.resource;
  allocation.binding = options_.binding;
  allocation.pass_device_specs = options_.pass_device_specs;
  allocation.dev_root = options_.dev_root;
  allocation.dev_root_ctr_path = options_.dev_root_ctr_path;
  allocator_ = std::make_unique<Allocator>(allocation, &*sealer_, &runner_->clock());
  // Device nodes first: without them the driver reports no GPU.
  if (options_.create_device_nodes) StartDeviceNodes();
  StartInventory();
  StartPlugin();
  RETURN_IF_ERROR(StartGrants());
  RETURN_IF_ERROR(StartStatusPage());
  StartPublisher();
  return Status::Ok();
}

void Agent::Impl::StartInventory() {
  gpu::InventoryOptions inventory;
  inventory.xids = options_.xids;
  const std::string& root = options_.driver_root_ctr_path;
  // A simulated driver brings its own /proc and /sys below its root.
  if (PathExists(JoinPath(root, "proc/driver/nvidia"))) {
    inventory.proc_root = JoinPath(root, "proc");
    if (PathExists(JoinPath(root, "sys/bus/pci"))) inventory.sys_root = JoinPath(root, "sys");
  }
  caller_ = std::make_unique<gpu::ThreadCaller>(runner_);
  inventory_ = std::make_unique<gpu::Inventory>(
      runner_, std::make_shared<gpu::NvmlLibraryLoader>(root), caller_.get(), inventory,
      [this](const gpu::InventorySnapshot& snapshot) { OnInventory(snapshot); });
  inventory_->Start();
}

void Agent::Impl::StartPlugin() {
  if (options_.kubelet_socket.empty()) return;
  plugin_ =
      std::make_unique<Plugin>(runner_, PluginOptions{options_.resource, options_.kubelet_socket},
                               allocator_.get(), &devices_, &metrics_);
}

Status Agent::Impl::StartGrants() {
  GrantsOptions grants;
  grants.service.resource = options_.resource;
  grants.service.driver_root = options_.driver_root;
  grants.service.dev_root = options_.dev_root;
  grants.service.dev_root_ctr_path = options_.dev_root_ctr_path;
  grants.service.version = kVersion;
  grants.state_dir = options_.state_dir;
  grants.socket = options_.grant_socket;
  grants.pod_resources_socket = options_.pod_resources_socket;
  grants.uid = ::geteuid();
  grants_ = std::make_unique<Grants>(grants, &devices_, &*sealer_, &metrics_);
  return grants_->Start();
}

Status Agent::Impl::StartStatusPage() {
  if (options_.metrics_address.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(status_page_,
                   StatusPage::Start(
                       io_, runner_, options_.metrics_address, [this] { return CurrentStatus(); },
                       [this](TaskRunner::Task task) { grants_->Post(std::move(task)); }));
  return Status::Ok();
}

void Agent::Impl::StartPublisher() {
  if (options_.node_name.empty()) return;
  auto api = KubeNodeApi::Make(io_, runner_, options_.kubeconfig, options_.node_name);
  if (!api.ok()) {
    // GPUs are given out without an API server; labels are not worth a crash loop.
    Log(Severity::kError, "no node labels: cannot talk to the API server",
        {{"error", api.status().ToString()}});
    return;
  }
  node_api_ = std::move(*api);
  publisher_ = std::make_unique<NodePublisher>(runner_, node_api_.get(), &metrics_);
  if (const auto set = devices_.Get()) publisher_->Publish(set->inventory());
}

// Made now, while the driver reports no GPU, and whenever somebody removes one.
void Agent::Impl::StartDeviceNodes() {
  node_watcher_ =
      std::make_unique<DirWatcher>(runner_, JoinPath(options_.dev_root_ctr_path, "dev"),
                                   DirWatcher::Events{.appeared = [](const std::string&) {},
                                                      .vanished =
                                                          [this](const std::string& name) {
                                                            if (name.rfind("nvidia", 0) == 0)
                                                              MakeDeviceNodes();
                                                          },
                                                      .look = [this] { MakeDeviceNodes(); }});
  node_watcher_->Start();
  RetryDeviceNodes();
}

void Agent::Impl::RetryDeviceNodes() {
  MakeDeviceNodes();
  const auto snapshot = inventory_ ? inventory_->snapshot() : nullptr;
  if (snapshot != nullptr && snapshot->problem.empty() && !snapshot->gpus.empty()) return;
  runner_->PostDelayed(kDeviceNodeRetry, [this, weak = std::weak_ptr<bool>(alive_)] {
    if (!weak.expired()) RetryDeviceNodes();
  });
}

void Agent::Impl::MakeDeviceNodes() {
  DeviceNodeOptions nodes;
  nodes.dev_root = options_.dev_root_ctr_path;
  const std::string proc = JoinPath(options_.driver_root_ctr_path, "proc");
  if (PathExists(JoinPath(proc, "driver/nvidia"))) nodes.proc_root = proc;
  const DeviceNodeReport report = CreateDeviceNodes(nodes);
  for (const std::string& path : report.made) {
    Log(Severity::kInfo, "made a device node", {{"path", path}});
  }
  std::string problems;
  for (const std::string& problem : report.problems) problems.append(problem).append("; ");
  if (problems != last_node_problem_ && !problems.empty()) {
    Log(Severity::kWarning, "device nodes", {{"problems", problems}});
  }
  last_node_problem_ = problems;
}

void Agent::Impl::OnInventory(const gpu::InventorySnapshot& snapshot) {
  LogChanges(*snapshot);
  const auto set = std::make_shared<const DeviceSet>(snapshot);
  for (const std::string& id : set->left_out()) {
    Log(Severity::kError, "a GPU has a UUID that cannot be offered", {{"uuid_hex", id}});
  }
  devices_.Set(set);
  if (plugin_) plugin_->Publish(*set);
  if (publisher_) publisher_->Publish(*snapshot);
  // Tabulated before the kubelet asks, but after it has our list.
  runner_->Post([set] { (void)set->chooser(); });
}

void Agent::Impl::LogChanges(const device::NodeInventory& now) {
  const auto before = devices_.Get();
  const bool same_problem = before != nullptr && before->inventory().problem == now.problem;
  if (!same_problem || before->inventory().gpus.size() != now.gpus.size()) {
    Log(now.problem.empty() ? Severity::kInfo : Severity::kWarning, "GPUs of this node",
        {{"gpus", now.gpus.size()},
         {"healthy", now.healthy_count()},
         {"driver", now.driver_version},
         {"problem", now.problem}});
  }
  for (const device::Gpu& gpu : now.gpus) {
    const device::Gpu* old = before != nullptr ? before->inventory().Find(gpu.uuid) : nullptr;
    const bool was_healthy = old == nullptr || old->health.ok();
    if (was_healthy == gpu.health.ok()) continue;
    Log(gpu.health.ok() ? Severity::kInfo : Severity::kWarning,
        gpu.health.ok() ? "GPU is healthy again" : "GPU is unhealthy",
        {{"gpu", gpu.uuid}, {"reason", gpu.health.ok() ? old->health.reason : gpu.health.reason}});
  }
}

AgentStatus Agent::Impl::CurrentStatus() const {
  AgentStatus status;
  status.resource = options_.resource;
  status.metrics = &metrics_;
  status.devices = devices_.Get();
  status.inventory = &inventory_->stats();
  status.registers = plugin_ != nullptr;
  status.registered = status.registers && plugin_->registered();
  return status;
}

Agent::Agent(TaskRunner* runner, net::IoThread* io, AgentOptions options)
    : impl_(std::make_unique<Impl>(runner, io, std::move(options))) {}
Agent::~Agent() = default;
Status Agent::Start() { return impl_->Start(); }
void Agent::Refresh() { impl_->Refresh(); }

Status CompleteOptions(AgentOptions* options) {
  if (options->driver_root.empty()) options->driver_root = "/";
  if (options->driver_root_ctr_path.empty()) options->driver_root_ctr_path = options->driver_root;
  if (options->dev_root.empty()) {
    const bool own = PathExists(JoinPath(options->driver_root_ctr_path, "dev"));
    options->dev_root = own ? options->driver_root : "/";
  }
  if (options->dev_root_ctr_path.empty()) {
    options->dev_root_ctr_path = options->dev_root == options->driver_root
                                     ? options->driver_root_ctr_path
                                     : options->dev_root;
  }
  for (const auto& [flag, path] :
       {std::pair("--driver-root", options->driver_root),
        std::pair("--dev-root", options->dev_root), std::pair("--state-dir", options->state_dir),
        std::pair("--grant-socket", options->grant_socket)}) {
    if (path.empty() || path[0] != '/') {
      return Error(Code::kInvalidArgument, "{}: \"{}\" is no absolute path", flag, path);
    }
  }
  return Status::Ok();
}

}  // namespace tessera::agent
