// SPDX-License-Identifier: Apache-2.0
// Talks to one API server: get, list, create, replace, patch, delete. JSON in and out; lists also
// in protobuf. Watches are in watch.h. Not for: knowing what is inside an object, or deciding what
// to do about a conflict.
//
// Trouble is handled here once for all callers, with growing, jittered waits. While the server
// cannot be reached (broken connections, 502, 503), one request goes ahead and the others wait for
// it. A priority level that the server rejects (429 of API Priority and Fairness) holds back the
// requests of that level. Any other 429, and Retry-After, hold back the request that got them.
// Requests that may not be sent twice (create, JSON patch) are retried only when the server refused
// them unread. A 401 is retried once, with the token read anew.
//
// Threads: made, used and destroyed on `runner`'s thread; callbacks run there, later, and never
// after the Operation or the client is gone. Bounds: `max_in_flight` requests at once,
// `max_waiting` more in the queue. Idle cost: none.
//
// Errors: those of api_error.h for what the server answered; of net/http_client.h for what kept us
// from an answer; DEADLINE_EXCEEDED after `deadline`, sent or not; RESOURCE_EXHAUSTED where the
// queue is full. Each begins with the verb and the path.
#pragma once

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

// Called right before each time that a request is sent, retries included. Anything but OK ends the
// operation with that Status, unsent. Not called for a request that expired in the queue.
using BeforeSend = std::function<Status()>;

enum class PatchKind { kJson, kMerge, kStrategicMerge, kApply };

struct PatchOptions {
  std::string field_manager;  // required for kApply
  bool force = false;         // kApply: take fields over from other managers
  bool dry_run = false;
  BeforeSend before_send = nullptr;
};

struct ListQuery {
  ResourceType type;
  std::string ns;  // "" is all of them
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // "" is the newest
  std::string continue_token;    // of the page before
  int limit = 500;
  Encoding encoding = Encoding::kJson;  // asked for; the server may answer in JSON all the same
};

struct ListPage {
  // Without apiVersion and kind, as the server sends them. Those in protobuf are views, valid
  // during the callback.
  std::vector<RawObject> items;
  std::string resource_version;
  std::string continue_token;  // "" on the last page
};

// A delete that holds only for this very object.
struct Preconditions {
  Uid uid;
  std::string resource_version;
};

struct ClientOptions {
  std::string user_agent = "tessera";
  int max_attempts = 6;                          // 1: no retries
  Duration deadline = std::chrono::seconds(60);  // of an operation, its waits included
  size_t max_in_flight = 8;
  size_t max_waiting = 256;
  size_t max_body = 64 << 20;
  std::optional<uint64_t> seed;  // of the jitter of waits; else the system's chance
};

// Those of a program that servers log as "<program>/<version>".
ClientOptions OptionsOf(std::string_view program);

class Client {
 public:
  using OnObject = std::function<void(Result<Json>)>;
  using OnPage = std::function<void(Result<ListPage>)>;

  using Options = ClientOptions;

  Client(net::IoThread& io, TaskRunner& runner, Config config, Options options);
  // Over another transport than HTTP, for simulations.
  Client(TaskRunner& runner, std::unique_ptr<ApiTransport> transport, Config config,
         Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Operation Get(const ObjectRef& object, OnObject on_done);
  Operation List(const ListQuery& query, OnPage on_done);
  // `object.name` may be empty where the body has a name or generateName.
  Operation Create(const ObjectRef& object, const Json& body, OnObject on_done,
                   BeforeSend before_send = nullptr);
  Operation Replace(const ObjectRef& object, const Json& body, OnObject on_done);
  Operation Patch(const ObjectRef& object, PatchKind kind, const Json& body,
                  const PatchOptions& options, OnObject on_done);
  Operation Delete(const ObjectRef& object, const Preconditions& preconditions, OnObject on_done);

  // For watch.h: one streamed GET, neither queued nor retried.
  Operation Stream(const std::string& target, Encoding encoding, const net::Deadlines& deadlines,
                   net::StreamHandler handler);

  TaskRunner& runner();
  const Config& config() const;
  // For the jitter of what uses this client.
  uint64_t NextSeed();

 private:
  struct Core;
  Operation SendForObject(net::Request request, const ObjectRef& object, bool repeatable,
                          OnObject on_done, BeforeSend before_send = nullptr);

  std::shared_ptr<Core> core_;
};

// "limit=500&labelSelector=..." with what the query says.
std::string QueryString(const ListQuery& query);

}  // namespace tessera::kube
