// SPDX-License-Identifier: Apache-2.0
#include "src/agent/plugins.h"

#include <algorithm>
#include <utility>

namespace tessera::agent {

Plugins::Plugins(TaskRunner* runner, const PluginsOptions& options,
                 const grant::TokenSigner* signer, const DeviceSetHolder* devices,
                 KubeletMetrics* metrics)
    : on_registered_change_(options.on_registered_change) {
  const auto add = [&](const std::string& name, PluginResponder::Ids ids, AdmissionOrder* order) {
    auto responder = std::make_unique<const PluginResponder>(
        name, ids, signer, &runner->clock(), order, options.grants, options.device_specs);
    auto plugin = std::make_unique<Plugin>(
        runner, PluginOptions{name, options.kubelet_socket, [this] { OnRegisteredChange(); }},
        responder.get(), devices, metrics);
    resources_.push_back({name, std::move(responder), std::move(plugin)});
  };
  add(options.resource, PluginResponder::Ids::kGpus, options.admission_order);
  for (const std::string& name : options.shared_resources) {
    add(name, PluginResponder::Ids::kShareUnits, nullptr);
  }
}

void Plugins::SetDevices(std::shared_ptr<const DeviceSet> set) {
  set_ = std::move(set);
  Publish();
}

void Plugins::SetUse(std::shared_ptr<const NodeUse> use) {
  use_ = std::move(use);
  Publish();
}

void Plugins::Publish() {
  if (set_ == nullptr) return;
  for (const Resource& resource : resources_) {
    resource.plugin->Publish(OffersOf(resource.name, *set_, *use_));
  }
}

void Plugins::OnRegisteredChange() {
  const bool is_registered = registered();
  if (is_registered == was_registered_) return;
  was_registered_ = is_registered;
  if (on_registered_change_) on_registered_change_(is_registered);
}

bool Plugins::registered() const {
  return std::all_of(resources_.begin(), resources_.end(),
                     [](const Resource& resource) { return resource.plugin->registered(); });
}

}  // namespace tessera::agent
