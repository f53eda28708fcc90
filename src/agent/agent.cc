// SPDX-License-Identifier: Apache-2.0
#include "src/agent/agent.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

#include "api/names.h"
#include "src/agent/compat/manager_page.h"
#include "src/agent/compat/take_over.h"
#include "src/agent/exporter/exporter.h"
#include "src/agent/grants_thread.h"
#include "src/agent/metrics.h"
#include "src/agent/node/device_nodes.h"
#include "src/agent/node/engine_watch.h"
#include "src/agent/node/node_hardware.h"
#include "src/agent/node/node_publisher.h"
#include "src/agent/node/readiness.h"
#include "src/agent/plugins.h"
#include "src/agent/pods/kube_pods.h"
#include "src/agent/status_page.h"
#include "src/base/dir_watcher.h"
#include "src/base/log.h"
#include "src/base/version.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/driver_files.h"
#include "src/gpu/driver_gate.h"
#include "src/net/address.h"

namespace tessera::agent {
namespace {

// A driver that reports no GPU may wait for device nodes.
constexpr Duration kDeviceNodeRetry = std::chrono::seconds(5);
constexpr Duration kModprobeRetry = std::chrono::minutes(1);
// By then a kubelet that accepts a registration has registered its node.
constexpr Duration kNodeRegistered = std::chrono::seconds(20);
// Interval of the only request of an idle agent, which corrects other writers' changes of the Node.
constexpr Duration kNodeCheckInterval = std::chrono::minutes(5);
// The driver wakes a GPU without persistence mode when its node is opened.
constexpr Duration kOpenDeadline = std::chrono::seconds(30);
constexpr Duration kReleaseCheckDelay = std::chrono::seconds(1);
// After a repair the engine has a minute to serve again.
constexpr Duration kEngineDeadline = std::chrono::minutes(2);
constexpr std::string_view kXidFile = "xids";

std::string ReleaseFile(const AgentOptions& options) {
  return JoinPath(DirName(options.grant_socket), names::kDriverReleaseFile);
}

// The directories of the engine's configuration, with its drop-ins.
std::vector<std::string_view> EngineDirs(std::string_view engine) {
  if (engine == "docker") return {"/etc/docker"};
  if (engine == "crio") return {"/etc/crio", "/etc/crio/crio.conf.d"};
  return {"/etc/containerd", "/etc/containerd/conf.d"};
}

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

class Agent::Impl {
 public:
  Impl(TaskRunner* runner, net::IoThread* io, AgentOptions options)
      : runner_(runner),
        io_(io),
        options_(std::move(options)),
        driver_gate_(std::make_shared<gpu::DriverGate>(
            fmt::format("the driver is closed for maintenance: remove {} to open it again",
                        ReleaseFile(options_)))) {}

  // The kubelet's streams end first: it must not see a plugin whose GPUs are not watched any more.
  ~Impl() { plugins_.reset(); }

  Status Start();
  void Refresh() {
    if (inventory_) inventory_->PollNow();
  }

 private:
  void StartPlugins();
  void ScheduleNodeCheck();
  void KeepCheckingNode();
  void StartInventory();
  Status StartGrants();
  std::unique_ptr<Pods> MakePods(TaskRunner* runner) const;
  Status StartStatusPage();
  Status StartExporter();
  void StartManagerPage();
  void GetHoldings(std::function<void(Holdings)> then);
  void StartPublisher();
  void MakeReadiness();
  void OnDriverFiles();
  void RefreshDriver();
  size_t GpusOnBus() const;
  void OpenDevices(std::vector<int> minors, std::function<void(SmokeTest::Problems)> done);
  void StartDeviceNodes();
  void MakeDeviceNodes();
  void RetryDeviceNodes();
  void LoadModule(const std::string& module);
  void StartDriverRelease();
  void SetDriverReleased(bool released);
  void StartEngineWatch();
  std::shared_ptr<gpu::NvmlLoader> MakeLoader() const;
  void OnInventory(const gpu::InventorySnapshot& reported);
  void OnWithheld(const WithheldGpus& withheld);
  void OnUnredeemed(const std::vector<std::string>& containers);
  void Publish();
  // Returns a function for any thread that calls `method` on the runner's thread.
  template <typename T>
  std::function<void(const T&)> OnMain(void (Impl::*method)(const T&)) {
    return [this, method, weak = weak_.Get()](const T& value) {
      runner_->Post([this, method, weak, value] {
        if (weak) (this->*method)(value);
      });
    };
  }
  void LogChanges(const device::NodeInventory& now);
  AgentStatus CurrentStatus() const;

  TaskRunner* const runner_;
  net::IoThread* const io_;
  const AgentOptions options_;

  AgentMetrics metrics_;
  DeviceSetHolder devices_;
  AdmissionOrder admission_order_;
  std::optional<grant::TokenSigner> signer_;
  std::unique_ptr<NodeReadiness> readiness_;  // used by the grants' thread
  std::unique_ptr<GrantsThread> grants_;
  std::unique_ptr<KubeNodeApi> node_api_;
  std::unique_ptr<NodePublisher> publisher_;
  std::unique_ptr<Plugins> plugins_;
  std::unique_ptr<DirWatcher> node_watcher_;
  DeviceNodes device_nodes_;
  bool node_retry_armed_ = false;
  std::unique_ptr<Worker> modprobe_;  // made when it is needed
  MonotonicTime next_modprobe_{};
  std::unique_ptr<gpu::ThreadCaller> caller_;
  std::unique_ptr<Exporter> exporter_;
  std::unique_ptr<gpu::Inventory> inventory_;
  std::unique_ptr<StatusPage> status_page_;
  std::unique_ptr<ManagerPage> manager_page_;
  const std::shared_ptr<gpu::DriverGate> driver_gate_;
  std::unique_ptr<DirWatcher> release_watcher_;
  std::unique_ptr<EngineWatch> engine_watch_;
  std::string engine_problem_;
  std::string unredeemed_problem_;
  WithheldGpus withheld_;
  std::shared_ptr<const ContainerUses> container_uses_;
  std::string last_node_problem_;
  WeakPtrFactory<Impl> weak_{this};
};

Status Agent::Impl::Start() {
  caller_ = std::make_unique<gpu::ThreadCaller>(runner_);
  MakeReadiness();
  // The steps that can fail come first, so that an agent that does not start leaves nothing behind.
  RETURN_IF_ERROR(StartExporter());
  RETURN_IF_ERROR(StartStatusPage());
  StartManagerPage();
  RETURN_IF_ERROR(MakeDirs(options_.state_dir, 0700));
  ASSIGN_OR_RETURN(const DirFd state, DirFd::Open(options_.state_dir));
  ASSIGN_OR_RETURN(signer_, grant::TokenSigner::Load(state, std::string(GrantsThread::kKeyName)));
  // Device nodes come first, because without them the driver reports no GPU.
  if (options_.create_device_nodes) StartDeviceNodes();
  driver_gate_->SetClosed(PathExists(ReleaseFile(options_)));
  if (exporter_) exporter_->Start();
  StartInventory();
  RETURN_IF_ERROR(StartGrants());
  StartDriverRelease();
  StartPlugins();
  StartPublisher();
  readiness_->Start();
  return Status::Ok();
}

void Agent::Impl::StartInventory() {
  gpu::InventoryOptions inventory;
  inventory.xids = options_.xids;
  inventory.xid_file = JoinPath(options_.state_dir, kXidFile);
  inventory.on_xid = [this](const std::string& uuid, uint64_t code) {
    if (exporter_) exporter_->OnXid(uuid, code);
    if (grants_) grants_->OnXid(uuid, code);
  };
  inventory.find_driver_root = [this] { return readiness_->driver_root().ctr; };
  inventory_ = std::make_unique<gpu::Inventory>(
      runner_, MakeLoader(), caller_.get(), inventory,
      [this](const gpu::InventorySnapshot& snapshot) { OnInventory(snapshot); });
  inventory_->Start();
}

void Agent::Impl::StartPlugins() {
  if (options_.kubelet_socket.empty()) return;
  PluginsOptions plugins;
  plugins.resource = options_.resource;
  plugins.shared_resources = options_.shared_resources;
  plugins.admission_order = &admission_order_;
  if (options_.binding == BindingMode::kAllocate) plugins.grants = grants_.get();
  plugins.device_specs = {.pass_device_specs = options_.pass_device_specs,
                          .dev_root = options_.dev_root,
                          .dev_root_ctr_path = options_.dev_root_ctr_path};
  plugins.kubelet_socket = options_.kubelet_socket;
  plugins.on_registered_change = [this](bool registered) {
    if (registered) ScheduleNodeCheck();
    readiness_->SetRegistered(registered);
  };
  plugins_ = std::make_unique<Plugins>(runner_, plugins, &*signer_, &devices_, &metrics_.kubelet);
}

Status Agent::Impl::StartGrants() {
  GrantsThreadOptions grants;
  grants.service.description.find_driver_root = [this] { return readiness_->driver_root().host; };
  grants.service.description.dev_root = options_.dev_root;
  grants.service.description.dev_root_ctr_path = options_.dev_root_ctr_path;
  grants.service.description.version = kTesseraVersion;
  grants.service.node_name = options_.node_name;
  grants.service.limits_dir = options_.limits_dir;
  grants.service.limits_fail_open = options_.limits_fail_open;
  grants.kill_on_bypass_namespaces = options_.limits_stop_bypass;
  grants.service.gpu_mem_unit = options_.gpu_mem_unit;
  grants.service.admission_order = &admission_order_;
  grants.service.metrics = &metrics_.grants;
  grants.state_dir = options_.state_dir;
  grants.socket = options_.grant_socket;
  grants.pod_resources_socket = options_.pod_resources_socket;
  grants.socket_client_uid = ::geteuid();
  if (!options_.node_name.empty()) {
    const std::string kubelet =
        options_.kubelet_socket.empty()
            ? ""
            : JoinPath(DirName(options_.kubelet_socket), names::kKubeletCheckpoint);
    grants.minors_of_other_plugins = ReadCheckpoints(kubelet, options_.manager_checkpoint);
    grants.make_pods = [this](TaskRunner* runner) { return MakePods(runner); };
    if (options_.binding == BindingMode::kLate)
      grants.service.on_unredeemed = OnMain(&Impl::OnUnredeemed);
  }
  grants.nvml = MakeLoader();
  grants.service.release.bound = options_.release_timeout;
  grants.service.release.on_withheld = OnMain(&Impl::OnWithheld);
  grants.on_usage_changed = [this, weak = weak_.Get()](std::shared_ptr<const NodeUse> use) {
    runner_->Post([this, weak, use = std::move(use)] {
      if (weak && plugins_) plugins_->SetUse(use);
    });
  };
  grants.on_container_uses = [this, weak = weak_.Get()](std::shared_ptr<const ContainerUses> uses) {
    runner_->Post([this, weak, uses = std::move(uses)] {
      if (!weak) return;
      container_uses_ = uses;
      if (exporter_) exporter_->SetContainerUses(uses);
    });
  };
  grants_ = std::make_unique<GrantsThread>(grants, &devices_, &*signer_, &metrics_.grants);
  return grants_->Start();
}

void Agent::Impl::KeepCheckingNode() {
  runner_->PostDelayed(kNodeCheckInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    publisher_->Recheck();
    KeepCheckingNode();
  });
}

// A kubelet that registers its node again sets resources that it does not know to 0.
void Agent::Impl::ScheduleNodeCheck() {
  runner_->PostDelayed(kNodeRegistered, [this, weak = weak_.Get()] {
    if (weak && publisher_) publisher_->Recheck();
  });
}

// Runs on the grants' thread.
std::unique_ptr<Pods> Agent::Impl::MakePods(TaskRunner* runner) const {
  auto pods =
      KubePods::Make(io_, runner, options_.kubeconfig, options_.node_name, options_.gpu_mem_unit);
  if (pods.ok()) return *std::move(pods);
  Log(Severity::kError,
      "cannot talk to the API server: pods get GPUs as the kubelet names them, not as a scheduler "
      "assigned them",
      {{"error", pods.status().ToString()}});
  return nullptr;
}

Status Agent::Impl::StartStatusPage() {
  if (options_.metrics_address.empty()) return Status::Ok();
  ASSIGN_OR_RETURN(status_page_,
                   StatusPage::Start(
                       io_, runner_, options_.metrics_address, [this] { return CurrentStatus(); },
                       [this](TaskRunner::Task task) { grants_->Post(std::move(task)); }));
  return Status::Ok();
}

Status Agent::Impl::StartExporter() {
  if (options_.metrics_address.empty() || options_.collect_interval == Duration::zero()) {
    return Status::Ok();
  }
  ExporterOptions exporter;
  ASSIGN_OR_RETURN(exporter.counters, LoadCounters(options_.collectors));
  exporter.hostname = options_.node_name.empty() ? HostName() : options_.node_name;
  exporter.style = options_.metric_labels;
  exporter.interval = options_.collect_interval;
  exporter.exports_xids = options_.xids.watches_any();
  exporter.xid_window = options_.xid_window;
  Exporter::Sources sources;
  sources.loader = MakeLoader();
  sources.caller = caller_.get();
  sources.holdings = [this](std::function<void(Holdings)> then) { GetHoldings(std::move(then)); };
  exporter_ = std::make_unique<Exporter>(runner_, std::move(exporter), std::move(sources));
  return Status::Ok();
}

// Calls `then` in any case: its caller waits for it.
void Agent::Impl::GetHoldings(std::function<void(Holdings)> then) {
  if (grants_) return grants_->GetHoldings(std::move(then));
  then({});
}

// An error of the page does not stop the agent: a gpu-manager that is still on the node keeps the
// port.
void Agent::Impl::StartManagerPage() {
  if (options_.manager_address.empty()) return;
  ManagerPage::Sources sources;
  sources.devices = &devices_;
  sources.loader = MakeLoader();
  sources.caller = caller_.get();
  sources.holdings = [this](std::function<void(Holdings)> then) { GetHoldings(std::move(then)); };
  auto page = ManagerPage::Start(io_, runner_, options_.manager_address, options_.node_name,
                                 std::move(sources));
  if (!page.ok()) {
    Log(Severity::kError, "cannot serve gpu-manager's metrics page",
        {{"error", page.status().ToString()}});
    return;
  }
  manager_page_ = *std::move(page);
}

void Agent::Impl::StartPublisher() {
  if (options_.node_name.empty()) return;
  auto api = KubeNodeApi::Make(io_, runner_, options_.kubeconfig, options_.node_name);
  if (!api.ok()) {
    // Grants work without the API server; labels are not worth a crash loop.
    Log(Severity::kError, "no node labels: cannot talk to the API server",
        {{"error", api.status().ToString()}});
    return;
  }
  node_api_ = std::move(*api);
  publisher_ = std::make_unique<NodePublisher>(runner_, node_api_.get(), &metrics_.node, [this] {
    return ReadNodeHardware(gpu::SysRootOf(readiness_->driver_root().ctr),
                            options_.machine_type_file);
  });
  publisher_->SetStartupTaints({options_.startup_taints.begin(), options_.startup_taints.end()});
  publisher_->OnNode([this](const Json& node) {
    grants_->SetIsolationDisabled(LabelOf(node, names::kLabelCgpuDisableIsolation) == "true");
  });
  Publish();
  KeepCheckingNode();
}

void Agent::Impl::MakeReadiness() {
  ReadinessOptions ready;
  ready.driver.roots = {{options_.driver_root, options_.driver_root_ctr_path}};
  if (options_.driver_root == "/") {
    const std::string& mount = options_.driver_root_ctr_path;
    const std::string& container = options_.driver_container_root;
    if (!container.empty()) ready.driver.roots.push_back({container, JoinPath(mount, container)});
    ready.driver.host_mount = mount;
    if (!options_.validations_dir.empty())
      ready.driver.driver_ready = JoinPath(options_.validations_dir, "driver-ready");
  }
  ready.validations_dir = options_.validations_dir;
  ready.dev_root = options_.dev_root;
  ready.expects_kubelet = !options_.kubelet_socket.empty();
  ready.expects_engine = !options_.engine.empty();
  ready.gpus_on_bus = [this] { return GpusOnBus(); };
  ready.open_devices = [this](std::vector<int> minors,
                              std::function<void(SmokeTest::Problems)> done) {
    OpenDevices(std::move(minors), std::move(done));
  };
  ready.on_driver_files = [this] { OnDriverFiles(); };
  ready.on_findings = [this] { Publish(); };
  readiness_ = std::make_unique<NodeReadiness>(runner_, std::move(ready));
}

void Agent::Impl::OnDriverFiles() {
  inventory_->PollNow();
  RefreshDriver();
  if (options_.create_device_nodes) RetryDeviceNodes();
}

void Agent::Impl::RefreshDriver() {
  if (grants_) grants_->RefreshDriver();
  if (manager_page_) manager_page_->RefreshDriver();
  if (exporter_) exporter_->RefreshDriver();
}

size_t Agent::Impl::GpusOnBus() const {
  const NodeHardware hardware =
      ReadNodeHardware(gpu::SysRootOf(readiness_->driver_root().ctr), options_.machine_type_file);
  return static_cast<size_t>(std::ranges::count_if(
      hardware.nvidia_devices, [](const PciDevice& device) { return device.IsGpu(); }));
}

void Agent::Impl::OpenDevices(std::vector<int> minors,
                              std::function<void(SmokeTest::Problems)> done) {
  const bool simulated = gpu::ProcRootOf(readiness_->driver_root().ctr) != "/proc";
  const auto problems = std::make_shared<SmokeTest::Problems>();
  caller_->Start(
      {.name = "open-devices",
       .deadline = kOpenDeadline,
       .work =
           [problems, simulated, minors = std::move(minors), dev = options_.dev_root_ctr_path] {
             *problems = OpenDeviceNodes(dev, minors, simulated);
           },
       .finished = [problems, done = std::move(done)] { done(*problems); },
       .overdue = [] {}});
}

// Device nodes are made now, while the driver reports no GPU, when the GPUs change, and when a node
// is removed.
void Agent::Impl::StartDeviceNodes() {
  node_watcher_ =
      std::make_unique<DirWatcher>(runner_, JoinPath(options_.dev_root_ctr_path, "dev"),
                                   DirWatcher::Events{.appeared = [](const std::string&) {},
                                                      .vanished =
                                                          [this](const std::string& name) {
                                                            if (name.rfind("nvidia", 0) == 0)
                                                              MakeDeviceNodes();
                                                          },
                                                      .on_rescan = [this] { MakeDeviceNodes(); }});
  node_watcher_->Start();
  RetryDeviceNodes();
}

void Agent::Impl::RetryDeviceNodes() {
  MakeDeviceNodes();
  const auto snapshot = inventory_ ? inventory_->snapshot() : nullptr;
  const bool well = snapshot != nullptr && snapshot->problem.empty() && !snapshot->gpus.empty();
  if (well || node_retry_armed_) return;
  node_retry_armed_ = true;
  runner_->PostDelayed(kDeviceNodeRetry, [this, weak = weak_.Get()] {
    if (!weak) return;
    node_retry_armed_ = false;
    RetryDeviceNodes();
  });
}

void Agent::Impl::MakeDeviceNodes() {
  DeviceNodeOptions nodes;
  nodes.dev_root = options_.dev_root_ctr_path;
  nodes.proc_root = gpu::ProcRootOf(readiness_->driver_root().ctr);
  nodes.load_module = [this](const std::string& module) { LoadModule(module); };
  const DeviceNodeReport report = device_nodes_.Update(nodes);
  for (const std::string& path : report.made) {
    Log(Severity::kInfo, "made a device node", {{"path", path}});
  }
  for (const std::string& path : report.removed) {
    Log(Severity::kInfo, "removed a device node of a GPU that is gone", {{"path", path}});
  }
  std::string problems;
  for (const std::string& problem : report.problems) problems.append(problem).append("; ");
  if (problems != last_node_problem_ && !problems.empty()) {
    Log(Severity::kWarning, "device nodes", {{"problems", problems}});
  }
  last_node_problem_ = problems;
}

// Does nothing with a simulated driver. Retries rarely, because the cause may persist.
void Agent::Impl::LoadModule(const std::string& module) {
  const MonotonicTime now = runner_->clock().Now();
  if (!PathExists("/sys/module/nvidia") || now < next_modprobe_) return;
  next_modprobe_ = now + kModprobeRetry;
  if (!modprobe_) modprobe_ = std::make_unique<Worker>("modprobe");
  modprobe_->Post(
      [this, module, runner = runner_, root = readiness_->driver_root().ctr, weak = weak_.Get()] {
        const Status loaded = LoadKernelModule(root, module);
        runner->Post([this, module, loaded, weak] {
          if (!weak) return;
          if (!loaded.ok()) {
            Log(Severity::kError, "cannot load a kernel module", {{"error", loaded.message()}});
            return;
          }
          Log(Severity::kInfo, "loaded a kernel module", {{"module", module}});
          MakeDeviceNodes();
        });
      });
}

void Agent::Impl::Publish() {
  const auto set = devices_.Get();
  if (publisher_ == nullptr || set == nullptr) return;
  device::NodeInventory told = set->PublishedInventory();
  told.runtime_problem = engine_problem_.empty() ? unredeemed_problem_ : engine_problem_;
  publisher_->Publish(told, readiness_->findings());
}

void Agent::Impl::OnUnredeemed(const std::vector<std::string>& containers) {
  unredeemed_problem_.clear();
  if (!containers.empty()) {
    const bool one = containers.size() == 1;
    unredeemed_problem_ = fmt::format(
        "{}, because the engine did not use tessera-runtime: {}{}. Restart the agent's pod of this "
        "node, which configures the engine, then the {}",
        one ? "1 container runs without its GPUs"
            : fmt::format("{} containers run without their GPUs", containers.size()),
        containers.front(), one ? "" : " and others", one ? "container's pod" : "containers' pods");
    Log(Severity::kError, "containers run without their GPUs",
        {{"containers", fmt::format("{}", fmt::join(containers, " "))}});
  }
  Publish();
}

std::shared_ptr<gpu::NvmlLoader> Agent::Impl::MakeLoader() const {
  return std::make_shared<gpu::GatedLoader>(driver_gate_, readiness_->MakeLoader());
}

// An administrator makes the file before an upgrade of the driver or a reset of a GPU.
void Agent::Impl::StartDriverRelease() {
  const auto set_if = [this](bool released) {
    return [this, released](const std::string& name) {
      if (name == names::kDriverReleaseFile) SetDriverReleased(released);
    };
  };
  release_watcher_ = std::make_unique<DirWatcher>(
      runner_, DirName(ReleaseFile(options_)),
      DirWatcher::Events{.appeared = set_if(true), .vanished = set_if(false), .on_rescan = [this] {
                           SetDriverReleased(PathExists(ReleaseFile(options_)));
                         }});
  release_watcher_->Start();
}

void Agent::Impl::SetDriverReleased(bool released) {
  if (driver_gate_->closed() == released) return;
  driver_gate_->SetClosed(released);
  Log(Severity::kWarning, released ? "closes the driver for maintenance" : "opens the driver again",
      {{"file", ReleaseFile(options_)}});
  inventory_->PollNow();
  // The second check sees a session that was being opened at the first.
  for (const Duration delay : {kReleaseCheckDelay, 4 * kReleaseCheckDelay}) {
    runner_->PostDelayed(delay, [this, weak = weak_.Get()] {
      if (weak) RefreshDriver();
    });
  }
}

void Agent::Impl::StartEngineWatch() {
  if (options_.engine.empty()) return;
  EngineWatchOptions watch;
  // The installer copies the program to this path.
  watch.command = {JoinPath(options_.engine_host_root, names::kRuntimeBinary), "configure",
                   "--engine=" + options_.engine, "--host-root=" + options_.engine_host_root,
                   "--set-as-default"};
  for (const std::string_view dir : EngineDirs(options_.engine)) {
    watch.dirs.push_back(JoinPath(options_.engine_host_root, dir));
  }
  watch.repair = options_.repair_engine;
  engine_watch_ =
      std::make_unique<EngineWatch>(runner_, watch, RunOnWorker(runner_, kEngineDeadline),
                                    &metrics_.node, [this](const std::string& problem) {
                                      engine_problem_ = problem;
                                      readiness_->SetEngineProblem(problem);
                                      Publish();
                                    });
  engine_watch_->Start();
}

void Agent::Impl::OnWithheld(const WithheldGpus& withheld) {
  withheld_ = withheld;
  if (const auto snapshot = inventory_->snapshot()) OnInventory(snapshot);
}

void Agent::Impl::OnInventory(const gpu::InventorySnapshot& reported) {
  const gpu::InventorySnapshot snapshot = Withhold(reported, withheld_);
  LogChanges(*snapshot);
  const auto set = std::make_shared<const DeviceSet>(snapshot, options_.gpu_mem_unit);
  for (const std::string& id : set->left_out()) {
    Log(Severity::kError, "a GPU has a UUID that cannot be offered", {{"uuid_hex", id}});
  }
  devices_.Set(set);
  // The installer skips nodes without GPUs.
  if (!snapshot->gpus.empty() && engine_watch_ == nullptr) StartEngineWatch();
  if (plugins_) plugins_->SetDevices(set);
  readiness_->SetInventory(snapshot, driver_gate_->closed());
  if (grants_) grants_->OnInventoryChanged();
  Publish();
  // Changed GPUs have other device nodes, and a returning driver may wait for them.
  if (options_.create_device_nodes) {
    runner_->Post([this, weak = weak_.Get()] {
      if (weak) RetryDeviceNodes();
    });
  }
  // The table is made before the kubelet's first call, but after the kubelet has the list.
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
  status.node = options_.node_name;
  status.container_uses = container_uses_;
  status.exporter = exporter_.get();
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

// A process that may run without the limiter must not be killed for it.
static Status CheckLimitNamespaces(const AgentOptions& options) {
  const std::set<std::string>& open = options.limits_fail_open;
  const std::set<std::string>& stop = options.limits_stop_bypass;
  if (open.empty() || stop.empty()) return Status::Ok();
  for (const std::string& ns : stop) {
    if (ns != "*" && !open.contains(ns) && !open.contains("*")) continue;
    return Error(Code::kInvalidArgument,
                 "--limits-stop-bypass={}: --limits-fail-open={} lets processes run without a "
                 "limiter: name each namespace in one of the two",
                 ns, fmt::join(open, ","));
  }
  return Status::Ok();
}

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
        std::pair("--grant-socket", options->grant_socket),
        std::pair("--engine-host-root", options->engine_host_root),
        std::pair("--limits-dir", options->limits_dir.empty() ? "/" : options->limits_dir)}) {
    if (path.empty() || path[0] != '/') {
      return Error(Code::kInvalidArgument, "{}: \"{}\" is no absolute path", flag, path);
    }
  }
  RETURN_IF_ERROR(CheckLimitNamespaces(*options));
  if (!options->metrics_address.empty()) {
    RETURN_IF_ERROR(
        net::ParseAddress(options->metrics_address).status().Annotate("--metrics-address"));
  }
  if (!options->manager_address.empty()) {
    RETURN_IF_ERROR(
        net::ParseAddress(options->manager_address).status().Annotate("--gpu-manager-address"));
  }
  return Status::Ok();
}

}  // namespace tessera::agent
