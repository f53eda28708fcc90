// SPDX-License-Identifier: Apache-2.0
// Finds the rights that a user lacks for each control (button) that changes the cluster, so that
// the page can disable the control. Each right is checked with a SelfSubjectAccessReview. The API
// server still authorizes each write.
//
// Threads: the client's runner. The callback runs later, and not after this object is destroyed. It
// must not destroy this object.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/console/sessions.h"
#include "src/ledger/feed.h"

namespace tessera::console {

class MissingRights {
 public:
  using Done = std::function<void(Result<Json>)>;

  // Calls `done` with the missing rights by control, such as {"cordon":["patch nodes"],"quota":[]}.
  // `feed`: names the ConfigMap that holds the quota.
  MissingRights(std::shared_ptr<WebSession> session, const ledger::FeedOptions& feed, Done done);

 private:
  // A right, and the controls that need it.
  struct Right {
    AccessRequest access;
    std::vector<std::string> controls;
    bool allowed = false;
  };

  void OnAnswer(Right& right, const Result<Json>& answer);

  std::shared_ptr<WebSession> session_;
  std::vector<Right> rights_;
  size_t unanswered_ = 0;
  Done done_;
  std::vector<kube::Operation> operations_;
};

}  // namespace tessera::console
