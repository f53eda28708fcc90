// SPDX-License-Identifier: Apache-2.0
// The parts of an agent that talk to the kubelet, on a runner of their own, with GPUs that the test
// sets.
#pragma once

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/agent/grants_thread.h"
#include "src/agent/kubelet/plugin.h"
#include "tests/component/fake_kubelet.h"

namespace tessera::testing {

inline constexpr const char* kGpu = "nvidia.com/gpu";

class AgentNode {
 public:
  AgentNode(std::string dir, int gpus) : dir_(std::move(dir)), gpus_(gpus) {
    thread_ = std::thread([this] { runner_.Run(); });
    Run([this] {
      plugin_ = std::make_unique<agent::Plugin>(
          &runner_, agent::PluginOptions{kGpu, JoinPath(dir_, "kubelet.sock")}, &allocator_,
          &devices_, &metrics_);
    });
  }
  ~AgentNode() {
    Run([this] { plugin_.reset(); });
    runner_.Quit();
    thread_.join();
  }

  // Publishes the GPUs, those in `unhealthy` as unhealthy.
  void Publish(const std::vector<int>& unhealthy = {}) {
    Publish(unhealthy, device::LinkMatrix(static_cast<size_t>(gpus_)));
  }
  void Publish(const std::vector<int>& unhealthy, device::LinkMatrix links) {
    auto inventory = std::make_shared<device::NodeInventory>();
    for (int i = 0; i < gpus_; ++i) {
      inventory->gpus.push_back({.uuid = Id(i), .index = i, .minor = i, .numa_node = i / 4});
    }
    for (const int i : unhealthy) inventory->gpus[i].health = device::Health::Unhealthy("XID 79");
    inventory->links = std::move(links);
    const auto set = std::make_shared<const agent::DeviceSet>(inventory);
    devices_.Set(set);
    Run([&] { plugin_->Publish(set->offers()); });
  }

  // The device list that the kubelet must have.
  std::vector<FakeKubelet::Device> Wanted(const std::vector<int>& unhealthy = {}) const {
    std::vector<FakeKubelet::Device> devices;
    for (int i = 0; i < gpus_; ++i) {
      const bool healthy = std::find(unhealthy.begin(), unhealthy.end(), i) == unhealthy.end();
      devices.push_back({Id(i), healthy, i / 4});
    }
    return devices;
  }

  bool registered() {
    bool registered = false;
    Run([&] { registered = plugin_->registered(); });
    return registered;
  }

  static std::string Id(int i) { return "GPU-" + std::to_string(i); }
  agent::KubeletMetrics& metrics() { return metrics_; }
  agent::DeviceSetHolder& devices() { return devices_; }
  const grant::TokenSigner& signer() const { return signer_; }

 private:
  void Run(const std::function<void()>& task) {
    std::promise<void> done;
    runner_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  const std::string dir_;
  const int gpus_;
  EpollTaskRunner runner_;
  std::thread thread_;
  agent::KubeletMetrics metrics_;
  agent::DeviceSetHolder devices_;
  grant::TokenSigner signer_{std::string(32, 'k')};
  SystemClock clock_;
  agent::PluginResponder allocator_{kGpu, agent::PluginResponder::Ids::kGpus, &signer_, &clock_};
  std::unique_ptr<agent::Plugin> plugin_;
};

}  // namespace tessera::testing
