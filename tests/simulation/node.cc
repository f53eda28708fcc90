// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/node.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/device/node_annotation.h"
#include "src/ledger/testing/objects.h"

namespace tessera::simulation {
namespace {

using namespace std::chrono_literals;

constexpr std::array kResources = {names::kResourceGpu, names::kResourceGpuMem,
                                   names::kResourceVcudaCore, names::kResourceVcudaMemory};
// The runtime requests a grant for this long; then the engine reports that the container cannot be
// created.
constexpr Duration kRuntimePatience = 10s;

}  // namespace

Node::Node(World& world, ApiServer& server, Truth& truth, const std::string& name, int gpus)
    : world_(world), server_(server), truth_(truth), name_(name) {
  const kube::NodeObject object = ledger::testing::GpuNode(name, gpus);
  inventory_ = std::make_shared<device::NodeInventory>(
      device::DecodeNodeInventory(
          object.meta.annotations.at(std::string(names::kAnnotationDevices)))
          .value());
  server_.Put(object);
  agent_ = std::make_unique<Agent>(
      world_, server_, name_, static_cast<agent::PodResources&>(*this),
      static_cast<agent::PodProcesses&>(*this), devices_,
      [this](std::shared_ptr<const agent::NodeUse> use) {
        use_ = std::move(use);
        SetDevices();
      },
      [this](const agent::WithheldGpus& withheld) {
        if (withheld_ == withheld) return;
        withheld_ = withheld;
        SetDevices();
        Publish();
      });
  SetDevices();
  feed_ = std::make_unique<ApiServer::Feed>(world_, server_,
                                            static_cast<ApiServer::Listener&>(*this), name_);
}

// Updates the devices that the plugins report to the kubelet.
void Node::SetDevices() {
  const auto set = std::make_shared<const agent::DeviceSet>(Published());
  devices_.Set(set);
  healthy_.clear();
}

const std::vector<std::string>& Node::HealthyIds(const std::string& resource) {
  const auto [known, is_new] = healthy_.try_emplace(resource);
  if (is_new) {
    for (agent::DeviceSet::Offer& offer : agent::OffersOf(resource, *devices_.Get(), *use_)) {
      if (offer.healthy) known->second.push_back(std::move(offer.id));
    }
  }
  return known->second;
}

void Node::BreakGpu() {
  const size_t gpu = world_.random().Below(inventory_->gpus.size());
  const auto set_health = [this, gpu](device::Health health) {
    world_.Note(fmt::format("{} of {} is {}", inventory_->gpus[gpu].uuid, name_,
                            health.ok() ? "healthy" : "unhealthy"));
    inventory_ = std::make_shared<device::NodeInventory>(*inventory_);
    inventory_->gpus[gpu].health = std::move(health);
    SetDevices();
    agent_->OnInventoryChanged();
    Publish();
  };
  set_health(device::Health::Unhealthy("XID 79"));
  world_.After(world_.Between(5s, kMaxUnhealthy), life_,
               [set_health] { set_health(device::Health::Healthy()); });
}

void Node::Leave() {
  const auto known = server_.nodes().find(name_);
  if (known == server_.nodes().end()) return;
  world_.Note(name_ + " is deleted");
  server_.Remove(kube::NodeObject(known->second));
}

void Node::Join() {
  if (server_.nodes().contains(name_)) return;
  world_.Note(name_ + " comes back");
  server_.Put(ledger::testing::GpuNode(name_, static_cast<int>(inventory_->gpus.size())));
  Publish();
}

void Node::Publish() {
  server_.Call(
      life_,
      [this] {
        if (!server_.nodes().contains(name_)) return Status();
        kube::NodeObject node = server_.nodes().at(name_);
        node.meta.annotations[std::string(names::kAnnotationDevices)] =
            device::EncodeNodeInventory(*Published()).value();
        server_.Put(std::move(node));
        return Status();
      },
      [this](const Status& status) {
        if (!status.ok()) world_.After(1s, life_, [this] { Publish(); });
      });
}

Node::Pod* Node::Find(const Uid& uid) {
  const auto found = pods_.find(uid);
  return found == pods_.end() ? nullptr : found->second.get();
}

void Node::OnPod(const kube::PodObject& object) {
  if (object.ended()) return;
  if (object.meta.deleting) return Stop(object.meta.uid);
  if (seen_.insert(object.meta.uid).second) Admit(object);
}

void Node::Admit(const kube::PodObject& object) {
  auto admitted = std::make_unique<Pod>();
  admitted->object = object;
  Pod& pod = *admitted;
  pods_[object.meta.uid] = std::move(admitted);
  for (const kube::Container& spec : pod.object.containers) {
    pod.containers.push_back({.spec = &spec});
    Container& container = pod.containers.back();
    // In random order, like the kubelet's iteration over a Go map.
    std::vector<std::pair<std::string, std::string>> limits(spec.limits.begin(), spec.limits.end());
    world_.random().Shuffle(limits);
    for (const auto& [resource, amount] : limits) {
      if (std::find(kResources.begin(), kResources.end(), resource) == kResources.end()) continue;
      const Status status = Allocate(pod, container, resource, std::stoll(amount));
      if (status.ok()) continue;
      world_.Note(fmt::format("{} rejects {}: {}", name_, object.meta.uid, status.message()));
      pods_.erase(object.meta.uid);
      return SetPhase(object.meta.uid, kube::PodPhase::kFailed);
    }
  }
  StartNext(pod);
}

std::unordered_set<std::string> Node::InUse(const std::string& resource) const {
  std::unordered_set<std::string> used;
  for (const auto& [uid, pod] : pods_) {
    if (pod->forgotten) continue;
    for (const Container& container : pod->containers) {
      const auto ids = container.ids.find(resource);
      if (ids != container.ids.end()) used.insert(ids->second.begin(), ids->second.end());
    }
  }
  return used;
}

Status Node::Allocate(Pod& pod, Container& container, const std::string& resource, int64_t amount) {
  const std::unordered_set<std::string> used = InUse(resource);
  std::vector<std::string> ids, free;
  if (container.spec->kind != kube::ContainerKind::kInit) {
    for (const Container& before : pod.containers) {
      const auto had = before.ids.find(resource);
      if (before.spec->kind != kube::ContainerKind::kInit || had == before.ids.end()) continue;
      for (const std::string& id : had->second) {
        const bool reused =
            std::any_of(pod.containers.begin(), pod.containers.end(), [&](const Container& other) {
              const auto has = other.ids.find(resource);
              return other.spec->kind != kube::ContainerKind::kInit && has != other.ids.end() &&
                     std::find(has->second.begin(), has->second.end(), id) != has->second.end();
            });
        if (!reused && std::find(ids.begin(), ids.end(), id) == ids.end() &&
            ids.size() < static_cast<size_t>(amount)) {
          ids.push_back(id);
        }
      }
    }
  }
  for (const std::string& id : HealthyIds(resource)) {
    if (!used.contains(id)) free.push_back(id);
  }
  world_.random().Shuffle(free);
  while (ids.size() < static_cast<size_t>(amount)) {
    if (free.empty()) return Error(Code::kResourceExhausted, "OutOf{}", resource);
    ids.push_back(free.back());
    free.pop_back();
  }
  ASSIGN_OR_RETURN(const std::vector<grant::Token> tokens, agent_->Allocate(resource, ids));
  container.ids[resource] = std::move(ids);
  container.tokens.insert(container.tokens.end(), tokens.begin(), tokens.end());
  return {};
}

// Starts the next init container, or all other containers.
void Node::StartNext(Pod& pod) {
  if (pod.stopping) return;
  for (size_t i = 0; i < pod.containers.size(); ++i) {
    Container& container = pod.containers[i];
    const bool init = container.spec->kind == kube::ContainerKind::kInit;
    if (container.tokens.empty()) container.ran = true;
    if (container.ran || container.requesting) {
      if (init && !container.ran) return;
      continue;
    }
    container.requesting = true;
    world_.After(world_.Between(20ms, 1500ms), pod.life, [this, &pod, i] { RequestGrant(pod, i); });
    if (init) return;
  }
}

void Node::RequestGrant(Pod& pod, size_t index) {
  if (pod.stopping) return;
  const Container& container = pod.containers[index];
  const auto answered = std::make_shared<bool>(false);
  const auto retry = [this, &pod, index] {
    world_.After(world_.Between(1s, 5s), pod.life,
                 [this, &pod, index] { RequestGrant(pod, index); });
  };
  agent_->Grant({.pod_uid = pod.object.meta.uid,
                 .pod_namespace = pod.object.meta.ns,
                 .pod_name = pod.object.meta.name,
                 .container = container.spec->name,
                 .tokens = container.tokens},
                [this, &pod, index, retry, answered,
                 life = std::weak_ptr(pod.life)](Result<grant::Grant> grant) {
                  if (life.expired() || std::exchange(*answered, true) || pod.stopping) return;
                  if (grant.ok()) return Run(pod, index, *grant);
                  Container& refused = pod.containers[index];
                  if (refused.rejection != grant.status().message()) {
                    refused.rejection = grant.status().message();
                    world_.Note(fmt::format("rejected {}/{}: {}", pod.object.meta.uid,
                                            refused.spec->name, refused.rejection));
                  }
                  retry();
                });
  world_.After(kRuntimePatience, pod.life, [retry, answered] {
    if (!std::exchange(*answered, true)) retry();
  });
}

void Node::Run(Pod& pod, size_t index, const grant::Grant& grant) {
  Container& container = pod.containers[index];
  container.rejection.clear();
  const Uid uid = pod.object.meta.uid;
  const kube::PodObject* now = server_.Find(uid);
  truth_.Starts(now != nullptr ? *now : pod.object, container.spec->name, grant);
  if (container.spec->kind == kube::ContainerKind::kInit) {
    return world_.After(world_.Between(50ms, 2s), pod.life, [this, &pod, index, uid] {
      truth_.Ends(uid, pod.containers[index].spec->name);
      pod.containers[index].ran = true;
      StartNext(pod);
    });
  }
  container.ran = true;
  if (!world_.Chance(10)) return;
  // The program ends, and the kubelet starts it again.
  world_.After(world_.Between(1s, 30s), pod.life, [this, &pod, index, uid] {
    if (pod.stopping) return;
    truth_.Ends(uid, pod.containers[index].spec->name);
    RequestGrant(pod, index);
  });
}

// The pod was deleted by force: the kubelet gives its ids to other pods at once, and then stops its
// containers.
void Node::OnPodGone(const kube::PodObject& last) {
  if (Pod* pod = Find(last.meta.uid)) pod->forgotten = true;
  Stop(last.meta.uid);
}

void Node::Stop(const Uid& uid) {
  Pod* pod = Find(uid);
  if (pod == nullptr) {
    seen_.insert(uid);
    return Delete(uid);
  }
  if (std::exchange(pod->stopping, true)) return;
  // Some processes hang in the driver for longer than the agent waits.
  const bool hangs = pod->forgotten && world_.Chance(20);
  const Duration takes = hangs ? world_.Between(20s, 50s) : world_.Between(10ms, 3s);
  world_.After(takes, pod->life, [this, pod, uid] {
    for (const Container& container : pod->containers) truth_.Ends(uid, container.spec->name);
    world_.After(world_.Between(10ms, 300ms), life_, [this, uid] {
      pods_.erase(uid);
      truth_.Forget(uid);
      Delete(uid);
    });
  });
}

void Node::Delete(const Uid& uid) {
  server_.Call(
      life_,
      [this, uid] {
        if (const kube::PodObject* pod = server_.Find(uid)) server_.Remove(kube::PodObject(*pod));
        return Status();
      },
      [this, uid](const Status& status) {
        if (!status.ok()) world_.After(1s, life_, [this, uid] { Delete(uid); });
      });
}

void Node::SetPhase(const Uid& uid, kube::PodPhase phase) {
  server_.Call(
      life_,
      [this, uid, phase] {
        if (const kube::PodObject* known = server_.Find(uid)) {
          kube::PodObject pod = *known;
          pod.phase = phase;
          server_.Put(std::move(pod));
        }
        return Status();
      },
      [this, uid, phase](const Status& status) {
        if (!status.ok()) world_.After(1s, life_, [this, uid, phase] { SetPhase(uid, phase); });
      });
}

// A pod has a process from its admission until its sandbox is removed.
void Node::Read(agent::PodProcesses::Done done) {
  world_.After(world_.Between(1ms, 20ms), life_, [this, done = std::move(done)] {
    agent::ProcessSnapshot seen;
    int pid = 1;
    for (const auto& [uid, pod] : pods_) seen.by_pod[uid] = {{++pid, 'S'}};
    done(seen);
  });
}

void Node::List(agent::PodResources::Done done) {
  world_.After(world_.Between(1ms, 20ms), life_, [this, done = std::move(done)] {
    if (world_.Chance(2)) return done(Status(Code::kUnavailable, "no response from the kubelet"));
    agent::PodDevices listed;
    for (const auto& [uid, pod] : pods_) {
      if (pod->forgotten) continue;
      listed.pods.emplace_back(pod->object.meta.ns, pod->object.meta.name);
      for (const Container& container : pod->containers) {
        if (container.spec->kind == kube::ContainerKind::kInit) continue;
        for (const auto& [resource, ids] : container.ids) {
          listed.held_devices.push_back(
              {pod->object.meta.ns, pod->object.meta.name, container.spec->name, resource, ids});
        }
      }
    }
    done(std::move(listed));
  });
}

std::vector<std::string> Node::stuck() const {
  std::vector<std::string> all;
  for (const auto& [uid, pod] : pods_) {
    for (const Container& container : pod->containers) {
      if (!container.ran)
        all.push_back(uid.str() + "/" + container.spec->name + ": " + container.rejection);
    }
  }
  return all;
}

}  // namespace tessera::simulation
