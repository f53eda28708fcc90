// SPDX-License-Identifier: Apache-2.0
// A client of one API server: get, list, create, replace, patch, apply, delete, evict. Objects are
// JSON; lists can also be protobuf. Watches are in watch.h; types known at run time are in
// type_catalog.h. Does not interpret objects and does not resolve conflicts.
//
// The client retries for all its callers, with growing, jittered waits. While the server is
// unreachable (broken connections, 502, 503), one request probes it and the others wait. If the
// server rejects a priority level (429 of API Priority and Fairness), the requests of that level
// wait. Any other 429, and Retry-After, delay only that request. Requests that must not be sent
// twice (create, JSON patch) are retried only if the server rejected them unprocessed. A 401 is
// retried once, with a token that was read again.
//
// Threads: created, used and destroyed on `runner`'s thread. Callbacks run there, later, and never
// after the Operation or the client is destroyed. Bounds: `max_in_flight` concurrent requests, and
// `max_waiting` more in the queue. Idle cost: none.
//
// Errors: api_error.h for responses of the server; net/http_client.h if no response was received;
// DEADLINE_EXCEEDED after `deadline`, whether the request was sent or not; RESOURCE_EXHAUSTED if
// the queue is full, or the server rejects the request's priority level until the deadline.
// Messages begin with verb and path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/uid.h"
#include "src/formats/json.h"
#include "src/kube/api_transport.h"
#include "src/kube/config.h"
#include "src/kube/raw_object.h"
#include "src/kube/resources.h"
#include "src/net/http_client.h"
#include "src/net/io_thread.h"

namespace tessera::kube {

// Called immediately before a request is sent, and before each retry. If it fails, the operation
// ends with that Status and nothing is sent. Not called for a request that expires in the queue.
using BeforeSend = std::function<Status()>;

enum class PatchKind { kJson, kMerge, kStrategicMerge, kApply };

struct CreateOptions {
  bool dry_run = false;
  // Unknown and repeated fields are errors (INVALID_ARGUMENT). Otherwise the server drops them.
  bool strict = false;
  BeforeSend before_send = nullptr;
};

struct PatchOptions {
  std::string field_manager;  // required for kApply
  // kApply: takes over fields from other managers. Without it, ABORTED names each field and its
  // manager.
  bool force = false;
  bool dry_run = false;
  BeforeSend before_send = nullptr;
};

struct ListQuery {
  ResourceType type;
  std::string ns;  // "": all namespaces
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // "": the newest
  std::string continue_token;    // of the previous page
  int limit = 500;
  Encoding encoding = Encoding::kJson;  // requested; the server may still answer in JSON
  bool metadata_only = false;           // objects have apiVersion, kind and metadata only
};

struct ListPage {
  // The server omits apiVersion and kind in lists. Protobuf items are views, valid during the
  // callback.
  std::vector<RawObject> items;
  std::string resource_version;
  std::string continue_token;  // "" on the last page
};

// A value of DeleteOptions::propagation: objects that the deleted object owns are deleted after it.
inline constexpr std::string_view kBackgroundDeletion = "Background";

struct DeleteOptions {
  // Preconditions, "" for none. ABORTED if the object has another UID or version.
  Uid uid;
  std::string resource_version;
  std::string_view propagation;  // the API's propagationPolicy; "": the server's default
  bool dry_run = false;
};

struct ClientOptions {
  std::string user_agent = "tessera";
  int max_attempts = 6;                          // 1: no retries
  Duration deadline = std::chrono::seconds(60);  // of an operation, including its waits
  size_t max_in_flight = 8;
  size_t max_waiting = 256;
  size_t max_body = 64 << 20;    // bytes of a response's body
  std::optional<uint64_t> seed;  // seeds the jitter of waits; nullopt: random
};

// Options with the user agent "<program>/<version>", which servers log.
ClientOptions ClientOptionsFor(std::string_view program);

class Client {
 public:
  using OnObject = std::function<void(Result<Json>)>;
  using OnPage = std::function<void(Result<ListPage>)>;

  using Options = ClientOptions;

  Client(net::IoThread& io, TaskRunner& runner, Config config, Options options);
  // Uses `transport` instead of HTTP, for simulations.
  Client(TaskRunner& runner, std::unique_ptr<ApiTransport> transport, Config config,
         Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Operation Get(const ObjectRef& object, OnObject on_done);
  Operation List(const ListQuery& query, OnPage on_done);
  // `object.name` may be empty if the body has a name or generateName.
  Operation Create(const ObjectRef& object, const Json& body, OnObject on_done,
                   const CreateOptions& options = {});
  Operation Replace(const ObjectRef& object, const Json& body, OnObject on_done);
  Operation Patch(const ObjectRef& object, PatchKind kind, const Json& body,
                  const PatchOptions& options, OnObject on_done);
  // Server-side apply: creates the object or sets its fields. Removes fields that `field_manager`
  // applied earlier and that `object` no longer has. An object that does not change keeps its
  // version. INVALID_ARGUMENT if `object` has no metadata.name, or no namespace although its type
  // is namespaced. `subresource`: such as "status".
  Operation Apply(const ResourceType& type, const Json& object, PatchOptions options,
                  OnObject on_done, std::string subresource = "");
  // Returns the object if finalizers or foreground deletion keep it, else a Status object.
  Operation Delete(const ObjectRef& object, const DeleteOptions& options, OnObject on_done);
  // Deletes a pod through the eviction API. RESOURCE_EXHAUSTED: a PodDisruptionBudget does not
  // allow it now.
  Operation Evict(const std::string& ns, const std::string& pod, const DeleteOptions& options,
                  OnObject on_done, BeforeSend before_send = nullptr);
  // Reads a document that is not an API object, such as "/apis/apps/v1".
  Operation GetDocument(const std::string& path, OnObject on_done);

  // One streamed GET, which is neither queued nor retried. `query`: its encoding and metadata_only
  // determine the Accept header.
  Operation Stream(const std::string& target, const ListQuery& query,
                   const net::Deadlines& deadlines, net::StreamHandler handler);

  // Requests that are sent from now on have this token instead of Config::token. Has no effect if
  // the configuration has a token file or a plugin.
  void SetToken(std::string token);

  TaskRunner& runner();
  const Config& config() const;
  // A new seed, for the random waits of objects that use this client.
  uint64_t NextSeed();

 private:
  struct Core;
  Operation SendForObject(net::Request request, const ObjectRef& object, bool repeatable,
                          OnObject on_done, BeforeSend before_send = nullptr);

  std::shared_ptr<Core> core_;
};

// The query string: "limit=500&labelSelector=...".
std::string QueryString(const ListQuery& query);

}  // namespace tessera::kube
