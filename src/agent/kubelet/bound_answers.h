// SPDX-License-Identifier: Apache-2.0
// The answers of one resource to the kubelet with --binding=allocate. Allocate is answered with the
// environment and device nodes of the GPUs that the grants' thread grants (allocation_grants.h).
// PreStartContainer is answered with an error if the GPUs do not belong to the container
// (start_checks.h). The environment has the variables of NVIDIA's device plugin and of older
// systems' images. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/agent/kubelet/plugin_answers.h"
#include "src/grant/message.h"

namespace tessera::agent {

// Allocates GPUs, and checks them before a container starts. Call on any thread. `done` is called
// once, on any thread, or not at all if the object is destroyed before.
class KubeletGrants {
 public:
  virtual ~KubeletGrants() = default;
  virtual void Allocate(const std::string& resource, const std::vector<std::string>& ids,
                        std::function<void(Result<grant::Grant>)> done) = 0;
  virtual void Check(const std::string& resource, const std::vector<std::string>& ids,
                     std::function<void(Status)> done) = 0;
};

struct DeviceSpecOptions {
  bool pass_device_specs = false;       // Allocate also returns device nodes
  std::string dev_root = "/";           // path on the host
  std::string dev_root_ctr_path = "/";  // path in this process
};

class AllocateBindingResponder final : public PluginResponder {
 public:
  // `late_binding` checks IDs and answers GetPreferredAllocation. `grants` must outlive the object.
  AllocateBindingResponder(std::string resource,
                           std::unique_ptr<const PluginResponder> late_binding,
                           DeviceSpecOptions options, KubeletGrants* grants);

  Status CheckIds(const DeviceSet& set, const std::vector<std::string>& ids) const override {
    return late_binding_->CheckIds(set, ids);
  }
  void Answer(const DeviceSet& set, const std::vector<std::string>& ids,
              OnAllocated done) const override;
  bool requires_pre_start() const override { return true; }
  void Check(const std::vector<std::string>& ids, OnChecked done) const override;
  bool has_preference() const override { return late_binding_->has_preference(); }
  Result<std::vector<std::string>> Prefer(const DeviceSet& set,
                                          const std::vector<std::string>& available,
                                          const std::vector<std::string>& must_include,
                                          int size) const override {
    return late_binding_->Prefer(set, available, must_include, size);
  }

 private:
  const std::string resource_;
  const std::unique_ptr<const PluginResponder> late_binding_;
  const DeviceSpecOptions options_;
  KubeletGrants* const grants_;
};

// Blocks for stat(2) on device nodes.
ContainerAllocation AllocationOf(const grant::Grant& grant, const DeviceSpecOptions& options);

}  // namespace tessera::agent
