// SPDX-License-Identifier: Apache-2.0
// Requests to the API server one after another, each waiting for its answer: for commands that
// change objects in an order. Objects of any type, found by apiVersion and kind.
//
// Threads: one; the calls block it, each at most the timeout. Errors: those of kube::Client, with
// what was done to which object.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/kube/type_catalog.h"
#include "src/net/io_thread.h"

namespace tessera::cli {

// An object of any type: as much as it takes to find it.
struct ObjectId {
  std::string api_version;
  std::string kind;
  std::string ns;  // "": cluster-scoped
  std::string name;

  // "DaemonSet tessera-system/tessera-agent"
  std::string Text() const;
  bool operator==(const ObjectId&) const = default;
};
// REQUIRES: a rendered object, or one of the API server.
ObjectId IdOf(const Json& object);

class InstallApi {
 public:
  InstallApi(kube::Config config, Duration timeout);

  Result<Json> Get(const ObjectId& id);
  // As server-side apply by manager "tessera", which takes over fields of others.
  Result<Json> Apply(const Json& object, bool dry_run);
  // OK also if there is no such object, or no such type.
  Status Delete(const ObjectId& id);
  // Objects of one type in all namespaces, or one; none if there is no such type. Items have
  // apiVersion and kind.
  Result<std::vector<Json>> List(const std::string& api_version, const std::string& kind,
                                 const std::string& label_selector, const std::string& ns = "");
  // A document that is no object, such as "/version".
  Result<Json> Document(const std::string& path);
  Status Patch(const kube::ObjectRef& object, kube::PatchKind kind, const Json& patch);

  // Calls `is_done` each 100 ms until it is true or fails. DEADLINE_EXCEEDED at `end`.
  Status WaitUntil(MonotonicTime end, const std::function<Result<bool>()>& is_done);
  MonotonicTime Now() const { return runner_.clock().Now(); }

 private:
  template <typename T>
  Result<T> Await(const std::function<kube::Operation(std::function<void(Result<T>)>)>& start);
  Result<kube::ResourceType> TypeOf(const std::string& api_version, const std::string& kind);
  Result<kube::ObjectRef> RefOf(const ObjectId& id);
  void Sleep(Duration duration);

  EpollTaskRunner runner_;
  net::IoThread io_;
  kube::Client client_;
  kube::TypeCatalog types_;
};

}  // namespace tessera::cli
