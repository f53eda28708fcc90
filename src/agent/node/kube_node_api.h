// SPDX-License-Identifier: Apache-2.0
// The Node object of this node over our API client. Threads: lives on `runner`.
#pragma once

#include <memory>
#include <string>

#include "src/agent/node/node_publisher.h"
#include "src/base/task_runner.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

class KubeNodeApi final : public NodeApi {
 public:
  // Errors of kube::FindConfig.
  static Result<std::unique_ptr<KubeNodeApi>> Make(net::IoThread* io, TaskRunner* runner,
                                                   const std::string& kubeconfig,
                                                   const std::string& node_name);
  ~KubeNodeApi() override;

  void Get(Done done) override;
  void MergePatch(const Json& patch, Done done) override;
  void PatchStatus(const Json& patch, Done done) override;
  void CreateEvent(const Json& event, Done done) override;

 private:
  struct Impl;
  explicit KubeNodeApi(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::agent
