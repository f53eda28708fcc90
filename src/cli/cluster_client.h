// SPDX-License-Identifier: Apache-2.0
// A synchronous client of the API server for commands. There are two ways to send requests:
//
//   one after another   Get, List, Apply, …: for commands that change objects in an order. Objects
//                       of any type, found by apiVersion and kind.
//   many at once        Read… and AddRequest, then Wait: for commands that read a whole cluster.
//
// Threads: one, which each call blocks for at most `timeout` per request. Bounds:
// kMaxParallelRequests requests at once. Errors: those of kube::Client, with the operation and the
// object. Included only in src/cli.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/kube/type_catalog.h"
#include "src/net/io_thread.h"

namespace tessera::cli {

// Identifies an object of any type.
struct ObjectId {
  std::string api_version;
  std::string kind;
  std::string ns;  // "": cluster-scoped
  std::string name;

  // "DaemonSet tessera-system/tessera-agent"
  std::string Text() const;
  bool operator==(const ObjectId&) const = default;
};
// REQUIRES: `object` has apiVersion and kind.
ObjectId IdOf(const Json& object);
std::vector<ObjectId> IdsOf(const std::vector<Json>& objects);

class ClusterClient {
 public:
  static constexpr size_t kMaxParallelRequests = 8;
  // Bounds the memory of ReadList. Kubernetes supports 150,000 pods in a cluster.
  static constexpr size_t kMaxObjects = 200'000;

  // `timeout` limits each request to the API server. `page_timeout` limits each request for an HTTP
  // page that a pod serves, and for the other paths of ReadText. `max_objects` limits each list of
  // ReadList.
  ClusterClient(kube::Config config, Duration timeout,
                Duration page_timeout = std::chrono::seconds(5), size_t max_objects = kMaxObjects);
  ClusterClient(const ClusterClient&) = delete;
  ClusterClient& operator=(const ClusterClient&) = delete;

  // --- One after another. REQUIRES: Wait has been called since the last Read… or AddRequest.

  Result<Json> Get(const ObjectId& id);
  Result<Json> Get(const kube::ObjectRef& object);
  // nullopt if the object or its type does not exist.
  Result<std::optional<Json>> Find(const ObjectId& id);
  Result<Json> Create(const kube::ObjectRef& object, const Json& body);
  // Server-side apply by manager "tessera", which takes over fields of other managers.
  Result<Json> Apply(const Json& object, bool dry_run);
  Status Patch(const kube::ObjectRef& object, kube::PatchKind kind, const Json& patch);
  // Returns OK if the object or its type does not exist.
  Status Delete(const ObjectId& id);
  // Returns NOT_FOUND if the object does not exist.
  Status Delete(const kube::ObjectRef& object);
  // Lists objects of one type in namespace `ns`, or in all namespaces if `ns` is "". Returns no
  // objects if the type does not exist. The items have apiVersion and kind, which the API server
  // leaves out of lists.
  Result<std::vector<Json>> List(const std::string& api_version, const std::string& kind,
                                 const std::string& label_selector, const std::string& ns = "");
  // The metadata of each object; NOT_FOUND if the object or its type does not exist. Needs only the
  // right to list the object by its name, and does not read the data of a Secret.
  std::vector<Result<Json>> GetMetadata(const std::vector<ObjectId>& ids);
  // Reads a document that is not an API object, such as "/version".
  Result<Json> GetDocument(const std::string& path);

  // Calls `is_done` every 100 ms until it returns true or fails. DEADLINE_EXCEEDED at `end`.
  Status WaitUntil(MonotonicTime end, const std::function<Result<bool>()>& is_done);
  void Sleep(Duration duration);
  MonotonicTime Now() const { return runner_.clock().Now(); }
  WallTime WallNow() const { return runner_.clock().WallNow(); }

  // --- Many at once. Each request writes its result into `*answer`, which must live until Wait
  // returns.

  // Returns the part of an item to keep. A null ItemReducer keeps the whole item.
  using ItemReducer = Json (*)(const Json& item);
  // The result has all objects, or is an error: DEADLINE_EXCEEDED if Wait returns before the last
  // page has arrived, OUT_OF_RANGE if there are more than `max_objects` objects.
  void ReadList(kube::ListQuery query, Result<std::vector<Json>>* answer,
                ItemReducer reduce = nullptr);
  void ReadObject(kube::ObjectRef object, Result<Json>* answer);
  // Reads an HTTP page of a pod in namespace tessera-system, through the API server.
  void ReadPage(const std::string& pod, std::string_view port, std::string_view path,
                Result<std::string>* answer);
  // Reads any path of the API server as text. Drops the text beyond `max_bytes`.
  void ReadText(std::string target, size_t max_bytes, Result<std::string>* answer);
  // Adds any other operation, which must call `done` at its end.
  using RequestStarter = std::function<kube::Operation(std::function<void()> done)>;
  void AddRequest(RequestStarter start);
  // Returns when all answers have arrived, or after `limit`. A request without an answer then has
  // DEADLINE_EXCEEDED as its result.
  void Wait(Duration limit = std::chrono::minutes(10));

  kube::Client& client() { return client_; }

 private:
  template <typename T>
  Result<T> Await(const std::function<kube::Operation(std::function<void(Result<T>)>)>& start);
  Result<kube::ResourceType> TypeOf(const std::string& api_version, const std::string& kind);
  Result<kube::ObjectRef> RefOf(const ObjectId& id);
  struct PendingList;
  void ListPage(kube::ListQuery query, const std::shared_ptr<PendingList>& list);
  void StartNext();

  const Duration page_timeout_;
  const size_t max_objects_;
  EpollTaskRunner runner_;
  net::IoThread io_;
  kube::Client client_;
  kube::TypeCatalog types_;
  std::deque<RequestStarter> waiting_;
  size_t active_ = 0;
  uint64_t wait_number_ = 0;  // number of finished calls of Wait
  std::vector<kube::Operation> operations_;
  WeakPtrFactory<ClusterClient> weak_{this};
};

}  // namespace tessera::cli
