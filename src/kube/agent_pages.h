// SPDX-License-Identifier: Apache-2.0
// Finds the agent of a node or the agents of all nodes, and reads pages from their metrics ports
// through the API server (pod_page.h). The user needs the RBAC rights `list` on pods and `get` on
// pods/proxy in the namespace of the agents. Skips agents that are being deleted, because during an
// update the node also has the new agent.
//
// Does not parse the pages. Threads: the client's runner, which also runs the callbacks. Ownership:
// the client must outlive the AgentPages. Bounds: kMaxConcurrentAgents agents at once.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/kube/client.h"

namespace tessera::kube {

class AgentPages {
 public:
  static constexpr size_t kMaxConcurrentAgents = 16;

  struct AgentPod {
    std::string pod, node;
  };
  // Called once for each agent and path.
  using OnPage =
      std::function<void(const AgentPod&, std::string_view path, const Result<std::string>& page)>;
  // An error if the agents cannot be listed; NOT_FOUND if no agent exists. If an agent does not
  // answer, only its pages have an error.
  using OnDone = std::function<void(const Status&)>;

  // `page_timeout`: the maximum time for each page.
  AgentPages(Client& client, Duration page_timeout);
  AgentPages(const AgentPages&) = delete;
  AgentPages& operator=(const AgentPages&) = delete;

  // Reads `paths`, such as "/metrics", of the agent of `node`, or of all agents if `node` is "".
  // Calls `on_done` once, after all pages. Makes no call after the object is destroyed. A callback
  // must not destroy the object. A later Read cancels an earlier Read. REQUIRES: `paths` not empty.
  void Read(std::string node, std::vector<std::string> paths, OnPage on_page, OnDone on_done);

 private:
  void List(std::string continue_token);
  void OnList(const Result<ListPage>& page);
  void RequestNext();
  void Request(const AgentPod& agent);
  void Finish(const Status& status);

  Client& client_;
  const Duration page_timeout_;
  std::string node_;
  std::vector<std::string> paths_;
  OnPage on_page_;
  OnDone on_done_;
  std::deque<AgentPod> agents_;  // not requested yet
  struct PodReads {
    std::vector<Operation> pages;
    size_t unread = 0;  // pages without a result
  };
  std::map<std::string, PodReads> requests_;  // by pod
  Operation listing_;
  WeakPtrFactory<AgentPages> weak_{this};
};

}  // namespace tessera::kube
