// SPDX-License-Identifier: Apache-2.0
// Which rights a person lacks for the controls that change the cluster, so that the page can say so
// before they are used. The API server answers (SelfSubjectAccessReview), and it still decides
// about each write.
//
// Threads: the client's runner. The callback runs later, and not after this object is destroyed; it
// may not destroy this object.
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

  // Answers with the missing rights by control, such as {"cordon":["patch nodes"],"quota":[]}.
  // `feed`: where the quota is.
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
  size_t open_ = 0;
  Done done_;
  std::vector<kube::Operation> operations_;
};

}  // namespace tessera::console
