// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/agent.h"

#include <utility>

#include "api/names.h"
#include "src/agent/pods/kube_pods.h"

namespace tessera::simulation {

using namespace std::chrono_literals;

// --- Disk.

class Disk::Log final : public grant::RecordLog {
 public:
  Log(Disk& disk, Content& content) : disk_(disk), content_(content) {}

  Status Append(std::string_view record) override {
    return disk_.Write([&] {
      content_.records.emplace_back(record);
      content_.unflushed = 0;
    });
  }
  Status AppendUnsynced(std::string_view record) override {
    return disk_.Write([&] {
      content_.records.emplace_back(record);
      ++content_.unflushed;
    });
  }
  Status Replace(const std::vector<std::string>& records) override {
    return disk_.Write([&] { content_ = {.records = records}; });
  }

 private:
  Disk& disk_;
  Content& content_;
};

std::unique_ptr<grant::RecordLog> Disk::Open(File file) {
  return std::make_unique<Log>(*this, files_[file]);
}

Status Disk::Write(const std::function<void()>& write) {
  if (killed_) return Status(Code::kAborted, "the process died in a write");
  if (!world_.Chance(kill_percent_)) {
    write();
    return {};
  }
  if (world_.Chance(50)) write();
  killed_ = true;
  return Status(Code::kAborted, "the process died in a write");
}

void Disk::Revive() {
  killed_ = false;
  const bool lost_power = world_.Chance(50);
  for (Content& content : files_) {
    if (lost_power) content.records.resize(content.records.size() - content.unflushed);
    content.unflushed = 0;
  }
}

// --- Pods of a node, received from and written to the API server.

namespace {

class ApiPods final : public agent::Pods, private ApiServer::Listener {
 public:
  ApiPods(World& world, ApiServer& server, std::string node)
      : world_(world), server_(server), node_(std::move(node)) {}

  void Start(agent::Pods::Delegate* delegate) override {
    delegate_ = delegate;
    feed_.emplace(world_, server_, static_cast<ApiServer::Listener&>(*this), node_);
  }
  const Map& pods() const override { return pods_; }
  bool synced() const override { return feed_ && feed_->synced(); }
  Status last_error() const override { return {}; }
  void Annotate(const agent::PodInfo& pod, const StringMap& annotations) override {
    const bool writing = wanted_.contains(pod.uid);
    for (const auto& [key, value] : annotations) wanted_[pod.uid][key] = value;
    if (!writing) Write(pod.uid);
  }
  // Nothing depends on Events.
  void Record(const agent::PodInfo&, const agent::PodEvent&) override {}

 private:
  void OnPod(const kube::PodObject& pod) override {
    pods_.insert_or_assign(pod.meta.uid, agent::PodInfoOf(pod, device::MemoryUnit::kGiB));
    delegate_->OnPod(pod.meta.uid);
  }
  void OnPodGone(const kube::PodObject& last) override {
    pods_.erase(last.meta.uid);
    wanted_.erase(last.meta.uid);
    delegate_->OnPod(last.meta.uid);
  }
  void OnSynced() override { delegate_->OnPodsSynced(); }

  void Write(const Uid& uid) {
    const StringMap now = wanted_[uid];
    server_.Call(
        // A sent request arrives even if its sender has died.
        life_, [&server = server_, uid, now] { return server.Annotate(uid, now); },
        [this, uid, now](const Status& status) {
          const auto wanted = wanted_.find(uid);
          if (wanted == wanted_.end()) return;
          if (status.code() == Code::kNotFound || (status.ok() && wanted->second == now)) {
            wanted_.erase(wanted);
            return;
          }
          world_.After(1s, life_, [this, uid] {
            if (wanted_.contains(uid)) Write(uid);
          });
        });
  }

  World& world_;
  ApiServer& server_;
  const std::string node_;
  agent::Pods::Delegate* delegate_ = nullptr;
  Map pods_;
  std::map<Uid, StringMap> wanted_;  // annotations to write, by pod
  std::optional<ApiServer::Feed> feed_;
  const Life life_ = Born();
};

}  // namespace

// --- The process.

Agent::Agent(World& world, ApiServer& server, std::string node, agent::PodResources& kubelet,
             agent::PodProcesses& processes, const agent::DeviceSetHolder& devices,
             OnOffers on_offers, OnWithheld on_withheld)
    : world_(world),
      server_(server),
      node_(std::move(node)),
      kubelet_(kubelet),
      processes_(processes),
      devices_(devices),
      on_offers_(std::move(on_offers)),
      on_withheld_(std::move(on_withheld)),
      disk_(world),
      signer_(std::string(32, 'k')) {
  StartProcess();
}

void Agent::StartProcess() {
  process_ = Born();
  disk_.Revive();
  on_withheld_({});
  size_t skipped = 0;
  grants_ = disk_.Open(Disk::kGrants);
  ledger_.emplace(grants_.get(), disk_.records(Disk::kGrants), &skipped);
  if (skipped > 0) world_.Fail("the agent cannot read its journal");
  pods_.emplace(std::make_unique<ApiPods>(world_, server_, node_), disk_.Open(Disk::kPods),
                disk_.records(Disk::kPods));
  take_over_.emplace(device::AllocatedMinors(), &*ledger_);
  service_.emplace(&world_.runner(),
                   agent::GrantOptions{.description = {.dev_root_ctr_path = "/nonexistent"},
                                       .node_name = node_,
                                       .release = {.processes = &processes_,
                                                   .on_withheld =
                                                       [this](const agent::WithheldGpus& withheld) {
                                                         world_.After(1ms, process_,
                                                                      [this, withheld] {
                                                                        on_withheld_(withheld);
                                                                      });
                                                       }},
                                       .metrics = &metrics_,
                                       .take_over = &*take_over_},
                   &devices_, &signer_, &*ledger_, &kubelet_, &*pods_,
                   [this](std::shared_ptr<const agent::NodeUse> use) {
                     world_.After(1ms, process_, [this, use] { on_offers_(use); });
                   });
  world_.Every(500ms, process_, [this] { DieIfKilled(); });
}

void Agent::Crash() {
  world_.Note("agent of " + node_ + " crashes");
  service_.reset();
  pods_.reset();
  ledger_.reset();
  process_.reset();
  world_.runner().PostDelayed(world_.Between(100ms, 6s), [this] { StartProcess(); });
}

void Agent::DieIfKilled() {
  if (disk_.killed() && running()) Crash();
}

size_t Agent::entries() const { return ledger_ ? ledger_->entries().size() : 0; }

Result<std::vector<grant::Token>> Agent::Allocate(const std::string& resource,
                                                  const std::vector<std::string>& ids) {
  const std::shared_ptr<const agent::DeviceSet> set = devices_.Get();
  if (!running() || disk_.killed() || !set) {
    return Status(Code::kUnavailable, "the plugin does not run");
  }
  using Ids = agent::PluginResponder::Ids;
  const Ids kind = resource == names::kResourceGpu ? Ids::kGpus : Ids::kShareUnits;
  const Result<agent::ContainerAllocation> answer =
      agent::PluginResponder(resource, kind, &signer_, &world_.clock()).Allocate(*set, ids);
  if (!answer.ok()) return answer.status();
  std::vector<grant::Token> tokens;
  for (const auto& [name, value] : answer->env) {
    if (name.starts_with(names::kEnvGrantPrefix)) tokens.push_back({name, value});
  }
  return tokens;
}

void Agent::Grant(const grant::GrantRequest& request, agent::GrantService::Reply reply) {
  if (!running()) return reply(Status(Code::kUnavailable, "the agent does not run"));
  service_->Handle(request, [this, life = std::weak_ptr(process_),
                             reply = std::move(reply)](Result<grant::Grant> grant) {
    // A process that died in a write sends no response.
    if (life.expired() || disk_.killed()) return;
    if (grant.ok() && !pods_->synced()) ++granted_from_memory_;
    reply(std::move(grant));
  });
  // Posted, because a process must not be destroyed inside its own call.
  world_.After(Duration::zero(), process_, [this] { DieIfKilled(); });
}

}  // namespace tessera::simulation
