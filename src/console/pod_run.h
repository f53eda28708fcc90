// SPDX-License-Identifier: Apache-2.0
// How pods run: their phase, their Events, and the restarts of each container and why it does not
// run. Read from the API server with the user's rights when a page needs it, because the console's
// own watch has neither containers nor pods that have ended.
//
// Threads: the client's runner. The callback runs later, and not after this object is destroyed. It
// must not destroy this object.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/console/sessions.h"

namespace tessera::console {

// How the pod runs, as JSON for the page. `pod`: the object of the API server.
Json RunOf(const Json& pod);
// The Events as JSON, newest first, at most kMaxEvents. Includes only Events of objects whose names
// begin with `prefix`; if `prefix` ends with "-", the rest of the name must have no "-".
inline constexpr size_t kMaxEvents = 20;
Json EventsOf(const std::vector<Json>& events, std::string_view prefix);

class RunReader {
 public:
  static constexpr int kMaxPods = 50;

  using Done = std::function<void(Result<Json>)>;
  struct Target {
    std::string ns;
    std::string pod;  // "": the pods of a Deployment
    // The name of the Deployment, and its label selector.
    std::string deployment;
    std::string selector;
  };

  // Calls `done` with "pods" and "events". A user who may not list Events gets "eventsDenied"
  // instead of "events".
  RunReader(std::shared_ptr<WebSession> session, Target target, Done done);

 private:
  static constexpr size_t kMaxEventPages = 20;  // each with 500 Events of a namespace

  void OnPods(const Result<kube::ListPage>& page);
  void ReadEvents(const std::string& continue_token);
  void OnEvents(const Result<kube::ListPage>& page);

  std::shared_ptr<WebSession> session_;
  const Target target_;
  Json answer_ = Json::MakeObject();
  std::vector<Json> events_;
  size_t event_pages_ = 0;
  Done done_;
  std::vector<kube::Operation> operations_;
};

// Reads the pods that request GPUs and have ended, in the namespaces whose pods the user may list.
class EndedPodReader {
 public:
  static constexpr size_t kMaxPods = 500;
  static constexpr int kMaxPages = 60;  // each with 500 pods of a namespace

  using Done = std::function<void(Result<Json>)>;

  // Calls `done` with "pods" and "complete", which says whether these are all. REQUIRES: the user
  // may list the pods of at least one namespace.
  EndedPodReader(std::shared_ptr<WebSession> session, Done done);

 private:
  void ReadNext();
  void OnPods(const Result<kube::ListPage>& page);

  std::shared_ptr<WebSession> session_;
  Done done_;
  std::vector<std::string> namespaces_;  // still to be read; "": all
  std::string continue_token_;
  int pages_ = 0;
  Json pods_ = Json::MakeArray();
  std::vector<kube::Operation> operations_;
};

}  // namespace tessera::console
