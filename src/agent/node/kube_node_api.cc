// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/kube_node_api.h"

#include <utility>

#include "api/names.h"
#include "src/kube/client.h"
#include "src/kube/config.h"

namespace tessera::agent {
struct KubeNodeApi::Impl {
  kube::Client client;
  std::string node;
  kube::Operation operation;  // the publisher starts one operation at a time
};

KubeNodeApi::KubeNodeApi(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KubeNodeApi::~KubeNodeApi() = default;

Result<std::unique_ptr<KubeNodeApi>> KubeNodeApi::Make(net::IoThread* io, TaskRunner* runner,
                                                       const std::string& kubeconfig,
                                                       const std::string& node_name) {
  ASSIGN_OR_RETURN(kube::Config config, kube::FindConfig(kubeconfig));
  kube::ClientOptions options = kube::OptionsOf(names::kAgent);
  options.max_in_flight = 1;
  return std::unique_ptr<KubeNodeApi>(new KubeNodeApi(std::unique_ptr<Impl>(
      new Impl{{*io, *runner, std::move(config), std::move(options)}, node_name, {}})));
}

void KubeNodeApi::Get(Done done) {
  impl_->operation = impl_->client.Get(kube::Node(impl_->node), std::move(done));
}

void KubeNodeApi::MergePatch(const Json& patch, Done done) {
  impl_->operation =
      impl_->client.Patch(kube::Node(impl_->node), kube::PatchKind::kMerge, patch,
                          {.field_manager = std::string(names::kAgent)}, std::move(done));
}

void KubeNodeApi::PatchStatus(const Json& patch, Done done) {
  impl_->operation =
      impl_->client.Patch(kube::NodeStatus(impl_->node), kube::PatchKind::kStrategicMerge, patch,
                          {.field_manager = std::string(names::kAgent)}, std::move(done));
}

void KubeNodeApi::CreateEvent(const Json& event, Done done) {
  const kube::ObjectRef collection{kube::kEvents, "", std::string(kNodeEventNamespace), ""};
  impl_->operation = impl_->client.Create(collection, event, std::move(done));
}

}  // namespace tessera::agent
