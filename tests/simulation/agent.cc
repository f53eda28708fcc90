// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/agent.h"

#include <utility>

#include "api/names.h"
#include "src/agent/kube_pods.h"

namespace tessera::simulation {

using namespace std::chrono_literals;

Status Disk::Write(std::function<void()> write) {
  if (killed_) return Status(Code::kAborted, "dead");
  if (!world_.Chance(danger_)) {
    write();
    return {};
  }
  if (world_.Chance(50)) write();
  killed_ = true;
  return Status(Code::kAborted, "dead");
}

Status Disk::Append(std::string_view record) {
  return Write([this, record = std::string(record)] {
    records_.push_back(record);
    unflushed_ = 0;
  });
}

Status Disk::AppendSoon(std::string_view record) {
  return Write([this, record = std::string(record)] {
    records_.push_back(record);
    ++unflushed_;
  });
}

Status Disk::Replace(const std::vector<std::string>& records) {
  return Write([this, records] {
    records_ = records;
    unflushed_ = 0;
  });
}

void Disk::Revive() {
  killed_ = false;
  if (unflushed_ > 0 && world_.Chance(50)) records_.resize(records_.size() - unflushed_);
  unflushed_ = 0;
}

Agent::Agent(World& world, ApiServer& server, std::string node, agent::PodResources& kubelet,
             const agent::DeviceSetHolder& devices, OnOffers on_offers)
    : world_(world),
      server_(server),
      node_(std::move(node)),
      kubelet_(kubelet),
      devices_(devices),
      on_offers_(std::move(on_offers)),
      disk_(world),
      sealer_(std::string(32, 'k')) {
  StartProcess();
}

void Agent::StartProcess() {
  process_ = Born();
  disk_.Revive();
  size_t skipped = 0;
  ledger_.emplace(&disk_, disk_.records(), &skipped);
  if (skipped > 0) world_.Fail("the agent cannot read its journal");
  service_.emplace(
      &world_.runner(),
      agent::GrantOptions{.description = {.dev_root_ctr_path = "/nonexistent"}, .node_name = node_},
      &devices_, &sealer_, &*ledger_, &kubelet_, static_cast<agent::Pods*>(this),
      [this](std::shared_ptr<const agent::NodeUse> use) {
        world_.After(1ms, process_, [this, use] { on_offers_(use); });
      });
  world_.Every(500ms, process_, [this] { DieIfKilled(); });
}

void Agent::Crash() {
  world_.Note("agent of " + node_ + " crashes");
  service_.reset();
  feed_.reset();
  ledger_.reset();
  pods_.clear();
  wanted_.clear();
  listener_ = nullptr;
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
    return Status(Code::kUnavailable, "the plugin is not there");
  }
  Result<agent::Allocation> answer =
      resource == names::kResourceGpu
          ? agent::Allocator({.resource = resource}, &sealer_, &world_.clock()).Allocate(*set, ids)
          : agent::ShareAllocator(resource, &sealer_, &world_.clock()).Allocate(*set, ids);
  if (!answer.ok()) return answer.status();
  std::vector<grant::Token> tokens;
  for (const agent::EnvEntry& entry : answer->env) {
    if (entry.name.starts_with(names::kEnvGrantPrefix)) tokens.push_back({entry.name, entry.value});
  }
  return tokens;
}

void Agent::Grant(const grant::Request& request, agent::GrantService::Reply reply) {
  if (!running()) return reply(Status(Code::kUnavailable, "nobody listens"));
  service_->Handle(request, [this, life = std::weak_ptr(process_),
                             reply = std::move(reply)](Result<grant::Grant> grant) {
    // A process that died in a write answers nobody.
    if (life.expired() || disk_.killed()) return;
    reply(std::move(grant));
  });
  // Not from within its own call.
  world_.After(Duration::zero(), process_, [this] { DieIfKilled(); });
}

void Agent::Start(agent::Pods::Listener* listener) {
  listener_ = listener;
  feed_.emplace(world_, server_, static_cast<ApiServer::Listener&>(*this), node_);
}

void Agent::OnPod(const kube::PodObject& pod) {
  pods_.insert_or_assign(pod.meta.uid, agent::PodInfoOf(pod, device::MemoryUnit::kGiB));
  listener_->OnPod(pod.meta.uid);
}

void Agent::OnPodGone(const kube::PodObject& last) {
  pods_.erase(last.meta.uid);
  wanted_.erase(last.meta.uid);
  listener_->OnPod(last.meta.uid);
}

void Agent::OnSynced() { listener_->OnPodsSynced(); }

void Agent::Annotate(const agent::PodInfo& pod, const device::Annotations& annotations) {
  const bool writing = wanted_.contains(pod.uid);
  for (const auto& [key, value] : annotations) wanted_[pod.uid][key] = value;
  if (!writing) Write(pod.uid);
}

void Agent::Write(const std::string& uid) {
  const device::Annotations now = wanted_[uid];
  server_.Call(
      process_, [this, uid, now] { return server_.Annotate(uid, now); },
      [this, uid, now](const Status& status) {
        const auto wanted = wanted_.find(uid);
        if (wanted == wanted_.end()) return;
        if (status.code() == Code::kNotFound || (status.ok() && wanted->second == now)) {
          wanted_.erase(wanted);
          return;
        }
        world_.After(1s, process_, [this, uid] {
          if (wanted_.contains(uid)) Write(uid);
        });
      });
}

}  // namespace tessera::simulation
