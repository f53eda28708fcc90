// SPDX-License-Identifier: Apache-2.0
// The kubelet's list of pods and devices, on a real socket; can hold its answer back. Threads: any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "podresources_v1.grpc.pb.h"

namespace tessera::testing {

class FakePodResources final : public v1::PodResourcesLister::Service {
 public:
  explicit FakePodResources(const std::string& path) {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
    server_ = builder.BuildAndStart();
  }
  ~FakePodResources() override {
    Release();
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  // Adds a pod in namespace "default" with one container, "main".
  void Admit(const std::string& pod, const std::vector<std::string>& ids,
             const std::string& resource = "nvidia.com/gpu") {
    const std::lock_guard lock(mutex_);
    v1::PodResources* entry = list_.add_pod_resources();
    entry->set_namespace_("default");
    entry->set_name(pod);
    entry->add_containers()->set_name("main");
    Give(entry, ids, resource);
  }
  // Adds devices to the last pod of that name.
  void Hold(const std::string& pod, const std::vector<std::string>& ids,
            const std::string& resource) {
    const std::lock_guard lock(mutex_);
    auto* pods = list_.mutable_pod_resources();
    for (int i = pods->size(); i-- > 0;) {
      if (pods->Get(i).name() == pod) return Give(pods->Mutable(i), ids, resource);
    }
  }
  void End(const std::string& pod) {
    const std::lock_guard lock(mutex_);
    auto* pods = list_.mutable_pod_resources();
    for (int i = pods->size(); i-- > 0;) {
      if (pods->Get(i).name() == pod) pods->DeleteSubrange(i, 1);
    }
  }

  // Sets whether the answer is an error.
  void Fail(bool fails) {
    const std::lock_guard lock(mutex_);
    fails_ = fails;
  }
  void Stall() {
    const std::lock_guard lock(mutex_);
    stalled_ = true;
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    stalled_ = false;
    changed_.notify_all();
  }

 private:
  // One entry for each device, as the kubelet has it.
  static void Give(v1::PodResources* pod, const std::vector<std::string>& ids,
                   const std::string& resource) {
    for (const std::string& id : ids) {
      v1::ContainerDevices* devices = pod->mutable_containers(0)->add_devices();
      devices->set_resource_name(resource);
      devices->add_device_ids(id);
    }
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* reply) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !stalled_; });
    if (fails_) return {grpc::StatusCode::UNAVAILABLE, "not now"};
    *reply = list_;
    return grpc::Status::OK;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stalled_ = false;
  bool fails_ = false;
  v1::ListPodResourcesResponse list_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tessera::testing
