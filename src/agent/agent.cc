// SPDX-License-Identifier: Apache-2.0
#include "src/agent/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/names.h"
#include "src/agent/grants_thread.h"
#include "src/agent/metrics.h"
#include "src/agent/node/device_node_keeper.h"
#include "src/agent/node/driver_release.h"
#include "src/agent/node/engine_watch.h"
#include "src/agent/node/node_hardware.h"
#include "src/agent/node/node_report.h"
#include "src/agent/node/readiness.h"
#include "src/agent/pages.h"
#include "src/agent/part_options.h"
#include "src/agent/plugins.h"
#include "src/agent/pods/kube_pods.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/driver_files.h"
#include "src/gpu/driver_gate.h"
#include "src/trace/tracer.h"

namespace tessera::agent {
namespace {

// Opening the device node of a GPU without persistence mode initializes the GPU, which takes
// seconds.
constexpr Duration kOpenDeadline = std::chrono::seconds(30);
// A repair restarts the engine and waits up to a minute until the engine serves again.
constexpr Duration kEngineDeadline = std::chrono::minutes(2);
constexpr std::string_view kXidFile = "xids";

void LogChanges(const DeviceSet* before, const device::NodeInventory& now) {
  const bool same_problem = before != nullptr && before->inventory().problem == now.problem;
  if (!same_problem || before->inventory().gpus.size() != now.gpus.size()) {
    Log(now.problem.empty() ? Severity::kInfo : Severity::kWarning, "read the GPUs of this node",
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

}  // namespace

class Agent::Impl {
 public:
  Impl(TaskRunner* runner, net::IoThread* io, AgentOptions options);
  // The kubelet's streams end first: the kubelet must not see a plugin whose GPUs are not watched
  // any more.
  ~Impl() { plugins_.reset(); }

  Status Start();
  void Refresh() {
    if (inventory_) inventory_->PollNow();
  }

 private:
  // The parts, in the order of their start.
  void MakeReadiness();
  Status StartTracer();
  Status StartPages();
  Status LoadTokenKey();
  void StartDeviceNodes();
  void StartInventory();
  Status StartGrants();
  void StartPlugins();
  void StartNodeReport();
  void StartEngineWatch();

  // Events of one part for the others, on the runner's thread.
  void OnDriverFiles();
  void OnInventory(const gpu::InventorySnapshot& reported);
  void OnWithheld(const WithheldGpus& withheld);
  void OnRegistered(bool registered);
  void OnEngineProblem(const std::string& problem);
  void RefreshDriver();
  void SetGpusFound(bool found);

  std::unique_ptr<Pods> MakePods(TaskRunner* runner) const;
  std::shared_ptr<gpu::NvmlLoader> MakeLoader() const;
  std::shared_ptr<gpu::NvmlLoader> MakeLoaderOfFoundGpus() const;
  std::string DriverRootInContainer() const { return readiness_->driver_root().container_path; }
  NodeHardware ReadHardware() const;
  void OpenDevices(std::vector<int> minors, std::function<void(SmokeTest::Problems)> done);
  AgentStatus CurrentStatus() const;
  // Returns a function for any thread that calls `then` on the runner's thread.
  template <typename Value>
  std::function<void(Value)> OnMain(std::function<void(const Value&)> then) {
    return [runner = runner_, then = std::move(then), weak = weak_.Get()](const Value& value) {
      runner->Post([then, weak, value] {
        if (weak) then(value);
      });
    };
  }

  TaskRunner* const runner_;
  net::IoThread* const io_;
  const AgentOptions options_;

  // Keep the order: each part uses parts before it, also from other threads.
  AgentMetrics metrics_;
  DeviceSetHolder devices_;
  WithheldGpus withheld_;
  AdmissionOrder admission_order_;
  std::optional<grant::TokenSigner> signer_;
  gpu::ThreadCaller caller_;
  // Closed until the inventory has found GPUs, and while it finds none. NVML counts the GPUs when
  // the first session of the process starts, so the inventory can count again only while no other
  // session is open.
  const std::shared_ptr<gpu::DriverGate> gpus_found_gate_ = std::make_shared<gpu::DriverGate>(
      fmt::format("the driver has no GPU for the agent yet: see the node's condition {}",
                  names::kConditionGpuReady));
  std::unique_ptr<trace::Tracer> tracer_;  // null: nothing is traced
  std::unique_ptr<NodeReadiness> readiness_;
  std::unique_ptr<GrantsThread> grants_;
  NodeReporter node_report_;
  std::unique_ptr<Plugins> plugins_;
  std::unique_ptr<DeviceNodeKeeper> device_nodes_;  // null: the agent makes none
  Pages pages_;
  std::unique_ptr<gpu::Inventory> inventory_;
  DriverReleaseWatch driver_release_;
  std::unique_ptr<EngineWatch> engine_watch_;  // null until the node has a GPU
  WeakPtrFactory<Impl> weak_{this};
};

Agent::Impl::Impl(TaskRunner* runner, net::IoThread* io, AgentOptions options)
    : runner_(runner),
      io_(io),
      options_(std::move(options)),
      caller_(runner),
      node_report_(runner, &metrics_.node,
                   {.inventory =
                        [this] {
                          const auto set = devices_.Get();
                          return set == nullptr ? std::nullopt
                                                : std::optional(set->PublishedInventory());
                        },
                    .findings = [this] { return readiness_->findings(); },
                    .hardware = [this] { return ReadHardware(); },
                    .on_node =
                        [this](const Json& node) {
                          grants_->SetIsolationDisabled(
                              LabelOf(node, names::kLabelCgpuDisableIsolation) == "true");
                        }}),
      pages_(runner,
             {.status = [this] { return CurrentStatus(); },
              .post_to_grants = [this](TaskRunner::Task task) { grants_->Post(std::move(task)); },
              .make_loader = [this] { return MakeLoaderOfFoundGpus(); },
              .holdings =
                  [this](std::function<void(Holdings)> then) {
                    // `then` is always called, because the caller waits for it.
                    grants_ ? grants_->GetHoldings(std::move(then)) : then({});
                  },
              .devices = &devices_,
              .caller = &caller_}),
      driver_release_(runner, JoinPath(DirName(options_.grant_socket), names::kDriverReleaseFile),
                      {.on_change = [this] { inventory_->PollNow(); },
                       .on_check = [this] { RefreshDriver(); }}) {
  gpus_found_gate_->SetClosed(true);
}

Status Agent::Impl::Start() {
  MakeReadiness();
  RETURN_IF_ERROR(StartTracer());
  // The steps that can fail come first, so that an agent that does not start leaves nothing behind.
  RETURN_IF_ERROR(StartPages());
  RETURN_IF_ERROR(LoadTokenKey());
  // Device nodes come before the inventory, because without them the driver reports no GPU.
  StartDeviceNodes();
  pages_.StartSampling();
  StartInventory();
  RETURN_IF_ERROR(StartGrants());
  driver_release_.Start();
  StartPlugins();
  StartNodeReport();
  readiness_->Start();
  // The engine is watched from the first inventory with a GPU.
  return Status::Ok();
}

void Agent::Impl::MakeReadiness() {
  ReadinessOptions readiness_options = ReadinessOptionsOf(options_);
  readiness_options.gpus_on_bus = [this] {
    return static_cast<size_t>(
        std::ranges::count_if(ReadHardware().nvidia_devices, &PciDevice::IsGpu));
  };
  readiness_options.driver.before_use = [this](const DriverRoot& root) {
    if (device_nodes_) device_nodes_->MakeNodes(root.container_path);
  };
  readiness_options.open_devices = [this](std::vector<int> minors,
                                          std::function<void(SmokeTest::Problems)> done) {
    OpenDevices(std::move(minors), std::move(done));
  };
  readiness_options.on_driver_files = [this] { OnDriverFiles(); };
  readiness_options.on_findings = [this] { node_report_.Publish(); };
  readiness_ = std::make_unique<NodeReadiness>(runner_, std::move(readiness_options));
}

Status Agent::Impl::StartTracer() {
  if (options_.otlp_endpoint.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(tracer_, trace::Tracer::Start(*io_, *runner_, metrics_.trace,
                                                 {.endpoint = options_.otlp_endpoint,
                                                  .service = std::string(names::kAgent),
                                                  .node = options_.node_name}));
  return Status::Ok();
}

Status Agent::Impl::StartPages() { return pages_.Start(io_, options_); }

Status Agent::Impl::LoadTokenKey() {
  RETURN_IF_ERROR(MakeDirs(options_.state_dir, 0700));
  ASSIGN_OR_RETURN(const DirFd state, DirFd::Open(options_.state_dir));
  ASSIGN_OR_RETURN(signer_, grant::TokenSigner::Load(state, std::string(GrantsThread::kKeyName)));
  return Status::Ok();
}

void Agent::Impl::StartDeviceNodes() {
  if (!options_.create_device_nodes) return;
  device_nodes_ = std::make_unique<DeviceNodeKeeper>(
      runner_, DeviceNodeKeeperOptions{.dev_root = options_.dev_root_ctr_path,
                                       .driver_root = [this] { return DriverRootInContainer(); },
                                       .driver_has_gpus =
                                           [this] {
                                             const auto snapshot =
                                                 inventory_ ? inventory_->snapshot() : nullptr;
                                             return snapshot != nullptr &&
                                                    snapshot->problem.empty() &&
                                                    !snapshot->gpus.empty();
                                           }});
  device_nodes_->Start();
}

void Agent::Impl::StartInventory() {
  gpu::InventoryOptions inventory;
  inventory.xids = options_.xids;
  inventory.xid_file = JoinPath(options_.state_dir, kXidFile);
  inventory.on_xid = [this](const std::string& uuid, uint64_t code) {
    pages_.OnXid(uuid, code);
    if (grants_) grants_->OnXid(uuid, code);
  };
  inventory.find_driver_root = [this] { return DriverRootInContainer(); };
  inventory_ = std::make_unique<gpu::Inventory>(
      runner_, MakeLoader(), &caller_, inventory,
      [this](const gpu::InventorySnapshot& snapshot) { OnInventory(snapshot); });
  inventory_->Start();
}

Status Agent::Impl::StartGrants() {
  GrantsThreadOptions grants = GrantsThreadOptionsOf(options_);
  grants.nvml = MakeLoaderOfFoundGpus();
  grants.service.description.find_driver_root = [this] {
    return readiness_->driver_root().host_path;
  };
  grants.service.admission_order = &admission_order_;
  if (tracer_) grants.record_span = tracer_->recorder();
  if (!options_.node_name.empty()) {
    grants.make_pods = [this](TaskRunner* runner) { return MakePods(runner); };
    if (options_.binding == BindingMode::kLate) {
      grants.service.on_unredeemed =
          OnMain<std::vector<std::string>>([this](const std::vector<std::string>& containers) {
            node_report_.SetContainersWithoutGpus(containers);
          });
    }
  }
  grants.service.release.on_withheld =
      OnMain<WithheldGpus>([this](const WithheldGpus& withheld) { OnWithheld(withheld); });
  grants.on_usage_changed = OnMain<std::shared_ptr<const NodeUse>>([this](const auto& use) {
    if (plugins_) plugins_->SetUse(use);
  });
  grants.on_container_uses = OnMain<std::shared_ptr<const ContainerUses>>(
      [this](const auto& uses) { pages_.SetContainerUses(uses); });
  grants_ = std::make_unique<GrantsThread>(grants, &devices_, &*signer_, &metrics_.grants);
  return grants_->Start();
}

void Agent::Impl::StartPlugins() {
  if (options_.kubelet_socket.empty()) return;
  PluginsOptions plugins = PluginsOptionsOf(options_);
  plugins.admission_order = &admission_order_;
  if (options_.binding == BindingMode::kAllocate) plugins.grants = grants_.get();
  plugins.on_registered_change = [this](bool registered) { OnRegistered(registered); };
  plugins_ = std::make_unique<Plugins>(runner_, plugins, &*signer_, &devices_, &metrics_.kubelet);
}

void Agent::Impl::StartNodeReport() {
  if (options_.node_name.empty()) return;
  auto api = ConnectNodeApi(io_, runner_, options_.kubeconfig, options_.node_name);
  if (!api.ok()) {
    // Grants work without the API server, so the agent goes on.
    Log(Severity::kError, "cannot publish the GPUs on the Node: no access to the API server",
        {{"error", api.status().ToString()}});
    return;
  }
  node_report_.Start(*std::move(api),
                     {options_.startup_taints.begin(), options_.startup_taints.end()});
}

void Agent::Impl::StartEngineWatch() {
  if (options_.engine.empty() || engine_watch_ != nullptr) return;
  engine_watch_ = std::make_unique<EngineWatch>(
      runner_, EngineWatchOptionsOf(options_), RunOnWorker(runner_, kEngineDeadline),
      &metrics_.node, [this](const std::string& problem) { OnEngineProblem(problem); });
  engine_watch_->Start();
}

void Agent::Impl::OnDriverFiles() {
  // Offers or withholds the known GPUs according to the new files at once, before NVML answers.
  if (const auto snapshot = inventory_->snapshot()) OnInventory(snapshot);
  if (device_nodes_) device_nodes_->Update();
  inventory_->PollNow();
  RefreshDriver();
}

void Agent::Impl::OnInventory(const gpu::InventorySnapshot& reported) {
  SetGpusFound(reported->problem.empty());
  WithheldGpus withheld = withheld_;
  const std::string reason = readiness_->ReasonToWithhold(*reported, driver_release_.closed());
  if (!reason.empty()) {
    for (const device::Gpu& gpu : reported->gpus) withheld.emplace(gpu.uuid, reason);
  }
  const gpu::InventorySnapshot snapshot = Withhold(reported, withheld);
  LogChanges(devices_.Get().get(), *snapshot);
  const auto set = std::make_shared<const DeviceSet>(snapshot, options_.gpu_mem_unit);
  for (const std::string& id : set->rejected_uuids()) {
    Log(Severity::kError, "a GPU has a UUID that cannot be offered", {{"uuid_hex", id}});
  }
  devices_.Set(set);
  // The installer skips nodes without GPUs.
  if (!snapshot->gpus.empty()) StartEngineWatch();
  if (plugins_) plugins_->SetDevices(set);
  readiness_->SetInventory(snapshot, driver_release_.closed());
  if (grants_) grants_->OnInventoryChanged();
  node_report_.Publish();
  // Changed GPUs need other device nodes, and a driver that returns may need device nodes to start.
  if (device_nodes_) {
    runner_->Post([this, weak = weak_.Get()] {
      if (weak) device_nodes_->Update();
    });
  }
  // The first call of chooser() builds a table, which takes long. A separate task builds it now, so
  // that it delays neither the list for the kubelet nor the kubelet's first call.
  runner_->Post([set] { (void)set->chooser(); });
}

void Agent::Impl::OnWithheld(const WithheldGpus& withheld) {
  withheld_ = withheld;
  if (const auto snapshot = inventory_->snapshot()) OnInventory(snapshot);
}

void Agent::Impl::OnRegistered(bool registered) {
  if (registered) node_report_.OnKubeletRegistered();
  readiness_->SetRegistered(registered);
}

void Agent::Impl::OnEngineProblem(const std::string& problem) {
  node_report_.SetEngineProblem(problem);
  readiness_->SetEngineProblem(problem);
  node_report_.Publish();
}

void Agent::Impl::RefreshDriver() {
  if (grants_) grants_->RefreshDriver();
  pages_.RefreshDriver();
}

void Agent::Impl::SetGpusFound(bool found) {
  if (found == !gpus_found_gate_->closed()) return;
  gpus_found_gate_->SetClosed(!found);
  RefreshDriver();
}

// Runs on the grants' thread.
std::unique_ptr<Pods> Agent::Impl::MakePods(TaskRunner* runner) const {
  auto pods =
      ConnectPods(io_, runner, options_.kubeconfig, options_.node_name, options_.gpu_mem_unit);
  if (pods.ok()) return *std::move(pods);
  Log(Severity::kError,
      "no access to the API server: pods get the GPUs that the kubelet names, and assignments of "
      "the scheduler have no effect",
      {{"error", pods.status().ToString()}});
  return nullptr;
}

std::shared_ptr<gpu::NvmlLoader> Agent::Impl::MakeLoader() const {
  return driver_release_.Gate(readiness_->MakeLoader());
}

std::shared_ptr<gpu::NvmlLoader> Agent::Impl::MakeLoaderOfFoundGpus() const {
  return std::make_shared<gpu::GatedLoader>(gpus_found_gate_, MakeLoader());
}

NodeHardware Agent::Impl::ReadHardware() const {
  return ReadNodeHardware(gpu::SysRootOf(DriverRootInContainer()), options_.machine_type_file);
}

void Agent::Impl::OpenDevices(std::vector<int> minors,
                              std::function<void(SmokeTest::Problems)> done) {
  const bool simulated = gpu::ProcRootOf(DriverRootInContainer()) != "/proc";
  const auto problems = std::make_shared<SmokeTest::Problems>();
  caller_.Start(
      {.name = "open-devices",
       .deadline = kOpenDeadline,
       .work =
           [problems, simulated, minors = std::move(minors), dev = options_.dev_root_ctr_path] {
             *problems = OpenDeviceNodes(dev, minors, simulated);
           },
       .on_finished = [problems, done = std::move(done)] { done(*problems); },
       .on_overdue = [] {}});
}

AgentStatus Agent::Impl::CurrentStatus() const {
  AgentStatus status;
  status.resource = options_.resource;
  status.metrics = &metrics_;
  status.devices = devices_.Get();
  status.node = options_.node_name;
  status.inventory = &inventory_->stats();
  status.registers = plugins_ != nullptr;
  status.registered = status.registers && plugins_->registered();
  return status;
}

Agent::Agent(TaskRunner* runner, net::IoThread* io, AgentOptions options)
    : impl_(std::make_unique<Impl>(runner, io, std::move(options))) {}
Agent::~Agent() = default;
Status Agent::Start() { return impl_->Start(); }
void Agent::Refresh() { impl_->Refresh(); }

}  // namespace tessera::agent
