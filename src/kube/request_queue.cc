// SPDX-License-Identifier: Apache-2.0
#include "src/kube/request_queue.h"

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/kube/api_error.h"
#include "src/kube/credentials.h"
#include "src/kube/send_lane.h"

namespace tessera::kube {
namespace {

constexpr MonotonicTime kNever = MonotonicTime::max();
// The response header in which API Priority and Fairness names the request's level.
constexpr std::string_view kPriorityLevel = "X-Kubernetes-PF-PriorityLevel-UID";

int64_t Seconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

// Whether the server is unreachable, directly or behind its proxy.
bool IsUnreachable(const Result<net::Response>& answer) {
  if (answer.ok()) return answer->status == 502 || answer->status == 503;
  const Code code = answer.status().code();
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
         code == Code::kUnauthenticated;
}

// Whether the server deferred this request or did not finish it.
bool IsDeferred(const net::Response& answer) {
  return answer.status == 429 || answer.status == 504 ||
         (answer.status >= 500 && RetryAfter(answer));
}

}  // namespace

struct RequestQueue::Item {
  net::Request request;
  std::string flow;
  bool repeatable;
  OnAnswer on_answer;
  BeforeSend before_send;
  MonotonicTime deadline;
  MonotonicTime not_before{};  // earliest time of the next attempt
  int attempts = 0;
  Status last_error;
  CredentialSource::Credential credential;  // of the last attempt
  bool done = false;                        // answered, cancelled, or the queue is closed
  Operation call;
  std::multimap<MonotonicTime, std::shared_ptr<Item>>::iterator timer;
};

// A priority level whose requests the server rejects.
struct RejectedLevel {
  SendLane lane;
  Status error;  // the last rejection
};

// Items are in `waiting`, or in `in_flight` from Send until the response. All items are in
// `deadlines`.
struct RequestQueue::Core : public std::enable_shared_from_this<RequestQueue::Core> {
  using ItemPtr = std::shared_ptr<Item>;

  Core(TaskRunner& task_runner, std::unique_ptr<ApiTransport> t, const Config& config,
       const ClientOptions& o)
      : runner(task_runner),
        options(o),
        impersonation(config.impersonation),
        transport(std::move(t)),
        credentials(task_runner, config, [this](const std::string& chain, const std::string& key) {
          transport->SetCertificate(chain, key);
        }) {}

  MonotonicTime Now() const { return runner.clock().Now(); }

  // Sends all requests that may be sent now, and sets the alarm for the next request. Calls no
  // callback except before_send.
  void SendReady() {
    const MonotonicTime now = Now();
    MonotonicTime wake = deadlines.empty() ? kNever : deadlines.begin()->first;
    for (auto at = waiting.begin(); at != waiting.end();) {
      const auto next = std::next(at);
      if (IsDue(**at, now, &wake) && server_lane.IsHealthy() && LaneOf(**at) == nullptr) Send(at);
      at = next;
    }
    // After an error the newest request probes the server, because it has the most time left for a
    // response. If the oldest request probed the server, it might expire before its response each
    // time, and the server would count as unreachable for good.
    for (auto at = waiting.end(); at != waiting.begin();) {
      const auto item = std::prev(at);
      if (IsDue(**item, now, &wake) && MayProbe(**item, now, &wake)) {
        Send(item);
      } else {
        at = item;
      }
    }
    WakeAt(wake);
  }

  bool IsDue(const Item& item, MonotonicTime now, MonotonicTime* wake) const {
    if (now < item.not_before) *wake = std::min(*wake, item.not_before);
    return now >= item.not_before && now < item.deadline &&
           in_flight.size() < options.max_in_flight;
  }

  bool MayProbe(const Item& item, MonotonicTime now, MonotonicTime* wake) {
    const SendLane* level = LaneOf(item);
    return server_lane.MaySend(now, wake) && (level == nullptr || level->MaySend(now, wake));
  }

  // Null unless the server rejects the request's priority level.
  RejectedLevel* LevelOf(const Item& item) {
    const auto level = level_of_flow.find(item.flow);
    const auto found =
        rejected_levels.find(level == level_of_flow.end() ? item.flow : level->second);
    return found == rejected_levels.end() ? nullptr : &found->second;
  }
  SendLane* LaneOf(const Item& item) {
    RejectedLevel* level = LevelOf(item);
    return level == nullptr ? nullptr : &level->lane;
  }

  void WakeAt(MonotonicTime when) {
    if (when >= wake_at) return;
    wake_at = when;
    runner.PostDelayed(when - Now(), [weak = weak_from_this(), when] {
      const auto self = weak.lock();
      if (!self || self->wake_at != when) return;
      self->wake_at = kNever;
      self->OnAlarm();
    });
  }

  void OnAlarm() {
    while (!closed && !deadlines.empty() && deadlines.begin()->first <= Now()) {
      const ItemPtr item = deadlines.begin()->second;
      Finish(item, ExpiredStatus(*item, in_flight.contains(item)));
    }
    if (!closed) SendReady();
  }

  Status ExpiredStatus(const Item& item, bool is_in_flight) {
    const RejectedLevel* level = LevelOf(item);
    // The server is up, and the request waited for its priority level alone.
    if (level != nullptr && !is_in_flight && server_lane.IsHealthy()) {
      return Error(Code::kResourceExhausted,
                   "the API server has rejected the priority level of {} for {} s: {}", item.flow,
                   Seconds(options.deadline), level->error.message());
    }
    const std::string_view last_error_label = item.last_error.ok() ? "" : ": the last error was ";
    if (item.attempts > 0) {
      return Error(Code::kDeadlineExceeded, "no response within {} s{}{}",
                   Seconds(options.deadline), last_error_label, item.last_error.message());
    }
    return Error(Code::kDeadlineExceeded, "not sent within {} s{}{}", Seconds(options.deadline),
                 unreachable_error.ok() ? "" : ": the API server is unreachable: ",
                 unreachable_error.message());
  }

  void AddCredentials(net::Request* request, const CredentialSource::Credential& credential) const {
    if (!credential.token.empty()) {
      request->headers.Set("Authorization", "Bearer " + credential.token);
    }
    request->headers.Set("User-Agent", options.user_agent);
    if (impersonation.user.empty()) return;
    request->headers.Set("Impersonate-User", impersonation.user);
    if (!impersonation.uid.empty()) request->headers.Set("Impersonate-Uid", impersonation.uid);
    for (const std::string& group : impersonation.groups) {
      request->headers.Add("Impersonate-Group", group);
    }
    // The server lower-cases the name of this header and then decodes it (unescapeExtraKey in
    // k8s.io/apiserver, pkg/endpoints/filters/impersonation), so upper-case letters do not survive.
    for (const auto& [key, value] : impersonation.extra) {
      request->headers.Add("Impersonate-Extra-" + net::PercentEncode(key), value);
    }
  }

  void Send(std::list<ItemPtr>::iterator position) {
    const ItemPtr item = *position;
    waiting.erase(position);
    in_flight.insert(item);
    server_lane.OnSent(item.get());
    if (SendLane* lane = LaneOf(*item)) lane->OnSent(item.get());
    const std::weak_ptr<Item> weak_item = item;
    credentials.Get([this, weak_item](const Result<CredentialSource::Credential>& credential) {
      const auto locked_item = weak_item.lock();
      if (!locked_item || locked_item->done) return;
      if (!credential.ok()) return FinishLater(locked_item, credential.status());
      locked_item->credential = *credential;
      SendWithCredential(locked_item);
    });
  }

  void SendWithCredential(const ItemPtr& item) {
    // The deadline may have passed while the credential was fetched. The alarm then ends the
    // request.
    if (Now() >= item->deadline) return;
    if (item->before_send) {
      if (Status allowed = item->before_send(); !allowed.ok()) return FinishLater(item, allowed);
    }
    ++item->attempts;
    net::Request request = item->request;
    AddCredentials(&request, item->credential);
    item->call = transport->Send(
        std::move(request), {.max_body = options.max_body},
        [weak = weak_from_this(), weak_item = std::weak_ptr(item)](Result<net::Response> answer) {
          const auto self = weak.lock();
          const auto locked_item = weak_item.lock();
          if (self && locked_item && !locked_item->done)
            self->OnAnswered(locked_item, std::move(answer));
        });
  }

  void OnAnswered(const ItemPtr& item, Result<net::Response> answer) {
    RemoveFromFlight(item);
    UpdateLanes(item, answer);
    if (!MayRetry(item.get(), answer)) return Finish(item, std::move(answer));
    item->last_error = answer.ok() ? ErrorOf(*answer) : answer.status();
    const auto expires_later = [&](const ItemPtr& other) {
      return other->deadline > item->deadline;
    };
    waiting.insert(std::find_if(waiting.begin(), waiting.end(), expires_later), item);
    SendReady();
  }

  // Updates the lanes of the server and of the request's priority level from a response.
  void UpdateLanes(const ItemPtr& item, const Result<net::Response>& answer) {
    if (IsUnreachable(answer)) {
      unreachable_error = answer.ok() ? ErrorOf(*answer) : answer.status();
      return server_lane.OnError(Now(), random);
    }
    if (!answer.ok()) return;
    unreachable_error = Status();
    server_lane.OnSuccess();
    std::string level(answer->headers.Get(kPriorityLevel));
    if (level.empty()) level = item->flow;
    if (std::string& stored = level_of_flow[item->flow]; stored != level) stored = level;
    // A rejection of the priority level is plain text. A Status object concerns only this request:
    // an eviction that a PodDisruptionBudget forbids also gets 429.
    if (answer->status == 429 && !IsApiStatus(*answer)) {
      RejectedLevel& rejected = rejected_levels[level];
      rejected.error = ErrorOf(*answer);
      return rejected.lane.OnError(Now(), random);
    }
    rejected_levels.erase(level);
  }

  // Whether the request may be sent again. Also sets its not_before.
  bool MayRetry(Item* item, const Result<net::Response>& answer) {
    if (item->attempts >= options.max_attempts) return false;
    if (answer.ok() && answer->status == 401) {
      return item->attempts == 1 && credentials.RejectAndCheckRetry(item->credential);
    }
    const bool unreachable = IsUnreachable(answer);
    if (!unreachable && (!answer.ok() || !IsDeferred(*answer))) return false;
    // A certificate error is not temporary.
    if (answer.status().code() == Code::kUnauthenticated) return false;
    std::optional<Duration> retry_after;
    if (answer.ok()) retry_after = RetryAfter(*answer);
    // 429 and Retry-After mean that the server did not process the request.
    const bool unprocessed = retry_after || (answer.ok() && answer->status == 429);
    if (!item->repeatable && !unprocessed) return false;
    // While the server is unreachable, its lane determines when to send again.
    const Duration own_wait =
        unreachable ? Duration::zero()
                    : JitteredWait(Backoff::kFirst, Backoff::kMax, item->attempts - 1, random);
    item->not_before = Now() + std::max(own_wait, retry_after.value_or(Duration::zero()));
    return std::max(item->not_before, server_lane.not_before()) < item->deadline;
  }

  // Removes the item from the requests in flight.
  void RemoveFromFlight(const ItemPtr& item) {
    in_flight.erase(item);
    server_lane.OnEnded(item.get());
    for (auto& [name, level] : rejected_levels) level.lane.OnEnded(item.get());
  }

  void Forget(const ItemPtr& item) {
    item->done = true;
    item->call.Cancel();
    deadlines.erase(item->timer);
    std::erase(waiting, item);
    RemoveFromFlight(item);
  }

  void Finish(const ItemPtr& item, const Result<net::Response>& answer) {
    const auto on_answer = std::exchange(item->on_answer, nullptr);
    Forget(item);
    SendReady();
    on_answer(answer);  // Last, because it may destroy the queue.
  }

  // Calls back later, never inside Submit.
  void FinishLater(const ItemPtr& item, Status status) {
    runner.Post([weak = weak_from_this(), item, status = std::move(status)] {
      if (const auto self = weak.lock(); self && !item->done) self->Finish(item, status);
    });
  }

  void Cancel(const ItemPtr& item) {
    if (item->done) return;
    item->on_answer = nullptr;
    Forget(item);
    // Posted, because the caller may be cancelling all its requests: none of the others may be sent
    // in between.
    runner.Post([weak = weak_from_this()] {
      if (const auto self = weak.lock(); self && !self->closed) self->SendReady();
    });
  }

  void Close() {
    closed = true;
    for (const auto& [deadline, item] : deadlines) item->done = true;
  }

  TaskRunner& runner;
  const ClientOptions options;
  const Impersonation impersonation;
  std::list<ItemPtr> waiting;  // ordered by deadline
  std::unordered_set<ItemPtr> in_flight;
  std::multimap<MonotonicTime, ItemPtr> deadlines;
  SendLane server_lane;
  std::unordered_map<std::string, RejectedLevel> rejected_levels;
  std::unordered_map<std::string, std::string> level_of_flow;
  Status unreachable_error;  // why the server is unreachable
  std::mt19937_64 random{options.seed.value_or(std::random_device{}())};
  MonotonicTime wake_at = kNever;
  bool closed = false;
  // Destroyed before the members above, to which its callbacks refer.
  std::unique_ptr<ApiTransport> transport;
  CredentialSource credentials;
};

RequestQueue::RequestQueue(TaskRunner& runner, std::unique_ptr<ApiTransport> transport,
                           const Config& config, const ClientOptions& options)
    : core_(std::make_shared<Core>(runner, std::move(transport), config, options)) {}

RequestQueue::~RequestQueue() { core_->Close(); }

TaskRunner& RequestQueue::runner() { return core_->runner; }

Operation RequestQueue::Submit(net::Request request, std::string flow, bool repeatable,
                               OnAnswer on_answer, BeforeSend before_send) {
  auto item = std::make_shared<Item>(Item{.request = std::move(request),
                                          .flow = std::move(flow),
                                          .repeatable = repeatable,
                                          .on_answer = std::move(on_answer),
                                          .before_send = std::move(before_send),
                                          .deadline = core_->Now() + core_->options.deadline});
  Operation operation([weak = std::weak_ptr(core_), item] {
    if (const auto core = weak.lock()) core->Cancel(item);
  });
  const bool full = core_->waiting.size() >= core_->options.max_waiting;
  item->timer = core_->deadlines.emplace(item->deadline, item);
  if (full) {
    core_->FinishLater(item, Error(Code::kResourceExhausted, "the client's queue is full"));
  } else {
    core_->waiting.push_back(std::move(item));
  }
  core_->SendReady();
  return operation;
}

// A stream that waits for its credential.
struct StreamState {
  bool cancelled = false;
  Operation call;
};

Operation RequestQueue::Stream(net::Request request, const net::Deadlines& deadlines,
                               net::StreamHandler handler) {
  const auto state = std::make_shared<StreamState>();
  Core* const core = core_.get();
  core->credentials.Get(
      [core, state, request = std::move(request), deadlines, handler = std::move(handler)](
          const Result<CredentialSource::Credential>& credential) mutable {
        if (state->cancelled) return;
        // Sent even without a credential, because the server's 401 states the reason.
        core->AddCredentials(&request, credential.value_or({}));
        handler.on_head = [core, sent_credential = credential.value_or({}),
                           on_head = std::move(handler.on_head)](const net::Response& head) {
          if (head.status == 401) (void)core->credentials.RejectAndCheckRetry(sent_credential);
          on_head(head);
        };
        state->call = core->transport->Stream(std::move(request), deadlines, std::move(handler));
      });
  return Operation([state] {
    state->cancelled = true;
    state->call.Cancel();
  });
}

void RequestQueue::SetToken(std::string token) { core_->credentials.SetToken(std::move(token)); }

}  // namespace tessera::kube
