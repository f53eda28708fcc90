// SPDX-License-Identifier: Apache-2.0
#include "tests/component/share_drill.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <thread>

#include "api/names.h"
#include "src/agent/grants/offers.h"
#include "src/agent/grants_thread.h"
#include "src/agent/kubelet/plugin.h"
#include "src/agent/pods/testing/fake_pods.h"
#include "src/base/random.h"
#include "src/grant/client.h"
#include "tests/component/fake_kubelet.h"
#include "tests/component/fake_pod_resources.h"

namespace tessera::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

const std::string kMem(names::kResourceGpuMem);

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Pod {
  std::string name;
  Uid uid;
  int gpu = 0;
  std::vector<std::string> ids;
  std::string token;
  std::string visible;  // GPUs in the answer of Allocate
  Status allocate_error;
};

class Drill {
 public:
  explicit Drill(const DrillOptions& options) : options_(options), random_(options.seed) {
    auto inventory = std::make_shared<device::NodeInventory>();
    for (int i = 0; i < options.gpus; ++i) {
      inventory->gpus.push_back(
          {.uuid = Uuid(i), .index = i, .minor = i, .memory = GiB(options.gib_per_gpu)});
    }
    inventory->links = device::LinkMatrix(static_cast<size_t>(options.gpus));
    devices_.Set(std::make_shared<agent::DeviceSet>(inventory));
    room_.assign(static_cast<size_t>(options.gpus), options.gib_per_gpu / options.gib_per_pod);
    kubelet_.SetBehavior({.pre_start = AtAllocate()});
    kubelet_.Start();
    StartGrants();
    answers_ = std::make_unique<agent::PluginResponder>(
        kMem, agent::PluginResponder::Ids::kShareUnits, &signer_, &clock_, nullptr,
        AtAllocate() ? grants_.get() : nullptr);
    thread_ = std::thread([this] { runner_.Run(); });
    OnRunner([this] {
      plugin_ = std::make_unique<agent::Plugin>(
          &runner_, agent::PluginOptions{kMem, plugin_dir_.path() + "/kubelet.sock", nullptr},
          answers_.get(), &devices_, &kubelet_metrics_);
      plugin_->Publish(agent::OffersOf(kMem, *devices_.Get(), {}));
    });
    for (const auto& offer : agent::OffersOf(kMem, *devices_.Get(), {}))
      free_ids_.push_back(offer.id);
    TESSERA_CHECK(kubelet_.WaitForRegistrations(1, 20s));
  }
  ~Drill() {
    OnRunner([this] { plugin_.reset(); });
    grants_.reset();
    runner_.Quit();
    thread_.join();
  }

  DrillResult Run() {
    while (result_.starts < options_.starts) {
      Schedule();
      Admit();
      Start();
      EndSome();
    }
    return std::move(result_);
  }

 private:
  bool AtAllocate() const { return options_.binding == agent::BindingMode::kAllocate; }
  static std::string Uuid(int gpu) { return "GPU-" + std::to_string(gpu); }

  void StartGrants() {
    agent::GrantsThreadOptions grants;
    grants.state_dir = dir_.path();
    grants.socket = dir_.path() + "/grant.sock";
    grants.pod_resources_socket = dir_.path() + "/pods.sock";
    grants.socket_client_uid = ::geteuid();
    grants.make_pods = [this](TaskRunner*) {
      auto pods = std::make_unique<agent::FakeApiPods>();
      api_ = pods.get();
      return pods;
    };
    grants_ = std::make_unique<agent::GrantsThread>(grants, &devices_, &signer_, &grant_metrics_);
    const Status status = grants_->Start();
    if (!status.ok()) CheckFailed(__FILE__, __LINE__, status.ToString());
    OnGrants([this] { api_->Sync(); });
  }

  template <typename Task>
  void OnRunner(Task task) {
    std::promise<void> done;
    runner_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  template <typename Task>
  void OnGrants(Task task) {
    std::promise<void> done;
    grants_->Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  // Makes new pods on random GPUs with room, under the names of ended pods if there are any.
  void Schedule() {
    std::vector<int> gpus_with_room;  // each GPU once for each pod that fits on it
    for (int gpu = 0; gpu < options_.gpus; ++gpu)
      gpus_with_room.insert(gpus_with_room.end(), room_[gpu], gpu);
    random_.Shuffle(gpus_with_room);
    for (const int gpu : gpus_with_room) {
      Pod pod{.uid = Uid("uid-" + std::to_string(next_uid_++)), .gpu = gpu};
      --room_[gpu];
      if (free_names_.empty()) {
        pod.name = "pod-" + std::to_string(next_name_++);
      } else {
        pod.name = free_names_.back();
        free_names_.pop_back();
        ++result_.remade;
      }
      waiting_.push_back(std::move(pod));
    }
    for (const Pod& pod : waiting_) {
      OnGrants([&] { api_->Set(PodInfoOf(pod)); });
    }
  }

  agent::PodInfo PodInfoOf(const Pod& pod) const {
    agent::PodInfo info = agent::FakeApiPods::Make(
        pod.name, {{"main", {{kMem, std::to_string(options_.gib_per_pod)}}}}, pod.uid);
    device::Assignment assignment;
    assignment.containers["main"] = {{.uuid = Uuid(pod.gpu), .memory = GiB(options_.gib_per_pod)}};
    info.annotations = *device::AnnotationsFor(*info.request, assignment,
                                               devices_.Get()->inventory(), {.node = "n"});
    return info;
  }

  // Admits the pods as the kubelet does: one pod at a time, with any free IDs.
  void Admit() {
    random_.Shuffle(waiting_);
    admitted_.Fail(options_.pod_resources_fails);
    for (Pod& pod : waiting_) {
      // The kubelet's PodResources lists a pod before the kubelet calls Allocate for it.
      admitted_.Admit(pod.name, {}, kMem);
      random_.Shuffle(free_ids_);
      pod.ids.assign(free_ids_.end() - options_.gib_per_pod, free_ids_.end());
      free_ids_.resize(free_ids_.size() - pod.ids.size());
      const auto start = Clock::now();
      const Duration agent_time_before = grant_metrics_.allocate_own.sum();
      const auto env = kubelet_.Allocate(pod.ids);
      result_.allocate_us.push_back(MicrosSince(start));
      result_.allocate_agent_us.push_back(std::chrono::duration<double, std::micro>(
                                              grant_metrics_.allocate_own.sum() - agent_time_before)
                                              .count());
      if (!env.ok()) {
        if (!options_.pod_resources_fails) CheckFailed(__FILE__, __LINE__, env.status().ToString());
        // The kubelet rejects the pod, because the agent could not find out which pods are gone.
        pod.allocate_error = env.status();
        admitted_.End(pod.name);
        continue;
      }
      for (const auto& [name, value] : *env) {
        if (name == grant::TokenVariable(kMem)) pod.token = value;
        if (name == names::kEnvVisibleDevices) pod.visible = value;
      }
      admitted_.Hold(pod.name, pod.ids, kMem);
    }
    admitted_.Fail(false);
  }

  // Starts one container of each waiting pod, `at_once` at a time.
  void Start() {
    random_.Shuffle(waiting_);
    std::atomic<size_t> next{0};
    std::vector<std::thread> starters;
    std::mutex mutex;
    for (int i = 0; i < options_.at_once; ++i) {
      starters.emplace_back([&] {
        for (size_t at; (at = next++) < waiting_.size();) {
          const auto start = Clock::now();
          const auto gpu = GpuOf(waiting_[at]);
          const double took = MicrosSince(start);
          const auto request_start = Clock::now();
          const bool answered = AgentAnswers();
          const double answer_took = MicrosSince(request_start);
          const std::lock_guard lock(mutex);
          if (answered) result_.rejected_us.push_back(answer_took);
          RecordStart(waiting_[at], gpu, took);
        }
      });
    }
    for (std::thread& starter : starters) starter.join();
    for (Pod& pod : waiting_) running_.push_back(std::move(pod));
    waiting_.clear();
  }

  // Sends a request that the agent rejects without a decision.
  bool AgentAnswers() const {
    const grant::GrantRequest invalid{.pod_uid = Uid("uid"),
                                      .pod_namespace = "ns",
                                      .pod_name = "pod",
                                      .container = "main",
                                      .tokens = {{"TESSERA_GRANT_NONE", "no token"}}};
    const auto answer = grant::RequestGrant(dir_.path() + "/grant.sock", invalid, 20s);
    return answer.status().code() == Code::kInvalidArgument;
  }

  // Returns the UUID of the GPU that a starting container gets.
  Result<std::string> GpuOf(const Pod& pod) {
    RETURN_IF_ERROR(pod.allocate_error);
    if (AtAllocate()) {
      std::vector<std::string> ids(pod.ids.rbegin(), pod.ids.rend());
      RETURN_IF_ERROR(kubelet_.PreStart(ids));
      return pod.visible;
    }
    ASSIGN_OR_RETURN(const grant::Grant grant, RequestGrantFor(pod));
    return grant.env.at(std::string(names::kEnvVisibleDevices));
  }

  Result<grant::Grant> RequestGrantFor(const Pod& pod) const {
    return grant::RequestGrant(dir_.path() + "/grant.sock",
                               {.pod_uid = pod.uid,
                                .pod_namespace = "default",
                                .pod_name = pod.name,
                                .container = "main",
                                .tokens = {{grant::TokenVariable(kMem), pod.token}}},
                               20s);
  }

  void RecordStart(const Pod& pod, const Result<std::string>& gpu, double took) {
    ++result_.starts;
    result_.grant_us.push_back(took);
    if (!gpu.ok()) {
      if (result_.refused++ == 0) result_.first_refusal = gpu.status().ToString();
    } else if (*gpu != Uuid(pod.gpu)) {
      ++result_.wrong;
    }
  }

  // Ends half of the pods. The API server and the kubelet forget them, and their names are free.
  void EndSome() {
    random_.Shuffle(running_);
    const size_t count = running_.size() / 2;
    for (size_t i = 0; i < count; ++i) {
      Pod& pod = running_.back();
      admitted_.End(pod.name);
      OnGrants([&] { api_->Remove(pod.uid); });
      free_ids_.insert(free_ids_.end(), pod.ids.begin(), pod.ids.end());
      ++room_[pod.gpu];
      free_names_.push_back(pod.name);
      running_.pop_back();
    }
    // While PodResources fails, the agent learns only later which pods are gone.
    while (options_.pod_resources_fails && HoldsGpusOfEndedPods()) std::this_thread::sleep_for(5ms);
  }

  bool HoldsGpusOfEndedPods() {
    std::promise<bool> holds;
    grants_->GetHoldings([&](const agent::Holdings& now) {
      holds.set_value(std::any_of(
          now.containers.begin(), now.containers.end(),
          [&](const auto& container) { return !api_->pods().contains(container.holder.pod_uid); }));
    });
    return holds.get_future().get();
  }

  const DrillOptions options_;
  Random random_;
  DrillResult result_;
  TempDir dir_;
  TempDir plugin_dir_;  // in which the kubelet removes every socket when it starts
  FakeKubelet kubelet_{plugin_dir_.path()};
  FakePodResources admitted_{dir_.path() + "/pods.sock"};
  EpollTaskRunner runner_;
  std::thread thread_;
  agent::KubeletMetrics kubelet_metrics_;
  agent::GrantMetrics grant_metrics_;
  agent::DeviceSetHolder devices_;
  grant::TokenSigner signer_{std::string(32, 'k')};
  SystemClock clock_;
  std::unique_ptr<const agent::PluginResponder> answers_;
  std::unique_ptr<agent::Plugin> plugin_;
  std::unique_ptr<agent::GrantsThread> grants_;
  agent::FakeApiPods* api_ = nullptr;  // lives on the grants' thread

  std::vector<int> room_;                // by GPU: the number of further pods that fit on it
  std::vector<std::string> free_ids_;    // device IDs that the kubelet can give to a pod
  std::vector<std::string> free_names_;  // names of pods that ended
  std::vector<Pod> waiting_, running_;
  int next_uid_ = 0;
  int next_name_ = 0;
};

}  // namespace

DrillResult RunShareDrill(const DrillOptions& options) { return Drill(options).Run(); }

}  // namespace tessera::testing
