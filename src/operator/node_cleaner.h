// SPDX-License-Identifier: Apache-2.0
// Removes the labels, annotations and conditions that agents have written on Nodes
// (components/agent_written_fields.h). Runs after the last agent has ended, because a running agent
// would write them again.
//
// Threads: the client's runner. The client must outlive the cleaner. Cost: lists the nodes in
// pages, and patches the nodes with such fields one after the other.
#pragma once

#include <functional>
#include <memory>

#include "src/base/status.h"
#include "src/kube/client.h"

namespace tessera::operators {

class NodeCleaner {
 public:
  using OnDone = std::function<void(const Status& status, size_t cleaned)>;

  // Starts at once. Calls `on_done` once, after the constructor has returned. An error names the
  // first node that failed; the other nodes are cleaned nevertheless.
  NodeCleaner(kube::Client& client, kube::BeforeSend before_send, OnDone on_done);
  ~NodeCleaner();
  NodeCleaner(const NodeCleaner&) = delete;
  NodeCleaner& operator=(const NodeCleaner&) = delete;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tessera::operators
