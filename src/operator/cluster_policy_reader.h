// SPDX-License-Identifier: Apache-2.0
// Polls whether NVIDIA's operator has a ClusterPolicy in the cluster. Does not watch, because the
// type ClusterPolicy is defined only in clusters with that operator.
//
// Threads: the client's runner. The client must outlive the reader.
#pragma once

#include <functional>
#include <string>

#include "src/base/weak_ptr.h"
#include "src/kube/client.h"

namespace tessera::operators {

class ClusterPolicyReader {
 public:
  // Calls `on_read` after each read.
  ClusterPolicyReader(kube::Client& client, Duration interval, std::function<void()> on_read);
  ClusterPolicyReader(const ClusterPolicyReader&) = delete;
  ClusterPolicyReader& operator=(const ClusterPolicyReader&) = delete;

  // Whether a read has succeeded.
  bool known() const { return known_; }
  // Name of the ClusterPolicy; "": the cluster has none.
  const std::string& name() const { return name_; }
  // The error of the last read. An error does not clear name(), because agents would then start
  // beside NVIDIA's device plugin, and both would grant the same GPUs.
  const Status& error() const { return error_; }

 private:
  void Read();

  kube::Client& client_;
  const Duration interval_;
  const std::function<void()> on_read_;
  bool known_ = false;
  std::string name_;
  Status error_;
  kube::Operation read_;
  WeakPtrFactory<ClusterPolicyReader> weak_{this};
};

}  // namespace tessera::operators
