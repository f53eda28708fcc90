// SPDX-License-Identifier: Apache-2.0
#include "src/kube/request_queue.h"

#include <algorithm>
#include <deque>
#include <unordered_set>
#include <utility>

#include "src/kube/api_error.h"
#include "src/kube/backoff.h"
#include "src/kube/credentials.h"

namespace tessera::kube {

struct RequestQueue::Item {
  net::Request request;
  bool repeatable;
  OnAnswer on_answer;
  BeforeSend before_send;
  MonotonicTime deadline;
  int attempts = 0;
  CredentialSource::Credential credential;  // that was sent last
  bool done = false;  // answered or cancelled
  net::Call call;
};

struct RequestQueue::Core : public std::enable_shared_from_this<RequestQueue::Core> {
  using ItemPtr = std::shared_ptr<Item>;

  Core(net::IoThread& io, TaskRunner& task_runner, const Config& config, const ClientOptions& o)
      : runner(task_runner),
        options(o),
        http(io, task_runner,
             {.server = config.server,
              .tls = config.tls,
              .max_idle_connections = std::max<size_t>(4, o.max_in_flight)}),
        credentials(task_runner, config, [this](const std::string& chain, const std::string& key) {
          http.SetCertificate({.text = chain}, {.text = key});
        }) {}

  MonotonicTime Now() const { return runner.clock().Now(); }

  // Sends what may be sent now. After trouble one request goes ahead, to see whether it is over.
  void Pump() {
    while (!waiting.empty()) {
      const size_t allowed = backoff.failures() > 0 ? 1 : options.max_in_flight;
      if (flying.size() >= allowed) return;
      if (Now() < not_before) return WakeAt(not_before);
      const ItemPtr item = waiting.front();
      waiting.pop_front();
      Send(item);
    }
  }

  void WakeAt(MonotonicTime when) {
    if (wake_pending) return;
    wake_pending = true;
    runner.PostDelayed(when - Now(), [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      self->wake_pending = false;
      self->Pump();
    });
  }

  void Dress(net::Request* request, const CredentialSource::Credential& credential) const {
    if (!credential.token.empty()) {
      request->headers.Set("Authorization", "Bearer " + credential.token);
    }
    request->headers.Set("User-Agent", options.user_agent);
  }

  void Send(const ItemPtr& item) {
    ++item->attempts;
    flying.insert(item);
    const std::weak_ptr<Item> weak_item = item;
    credentials.Get([this, weak_item](const Result<CredentialSource::Credential>& credential) {
      const auto held = weak_item.lock();
      if (!held || held->done) return;
      const auto answered = AnswerTo(held);
      // Not from inside Submit.
      if (!credential.ok()) {
        return runner.Post([answered, status = credential.status()] { answered(status); });
      }
      held->credential = *credential;
      SendDressed(held, answered);
    });
  }

  std::function<void(Result<net::Response>)> AnswerTo(const ItemPtr& item) {
    return [weak = weak_from_this(), weak_item = std::weak_ptr(item)](Result<net::Response> a) {
      const auto self = weak.lock();
      const auto held = weak_item.lock();
      if (self && held && !held->done) self->OnAnswered(held, std::move(a));
    };
  }

  void SendDressed(const ItemPtr& item,
                   const std::function<void(Result<net::Response>)>& answered) {
    if (const Status may = CheckBeforeSend(*item, Now()); !may.ok()) {
      // Not from inside Submit.
      return runner.Post([weak = weak_from_this(), weak_item = std::weak_ptr(item), may] {
        const auto self = weak.lock();
        const auto held = weak_item.lock();
        if (self && held && !held->done) self->Finish(held, may);
      });
    }
    const Duration left = std::max<Duration>(item->deadline - Now(), std::chrono::milliseconds(1));
    Dress(&item->request, item->credential);
    const net::Deadlines usual;
    const net::HttpClient::CallOptions call_options{
        .deadlines = {.connect = std::min(usual.connect, left),
                      .header = std::min(usual.header, left),
                      .body = std::min(usual.body, left)},
        .max_body = options.max_body};
    item->call = http.Send(item->request, call_options, answered);
  }

  static Status CheckBeforeSend(const Item& item, MonotonicTime now) {
    if (now >= item.deadline) {
      return Error(Code::kDeadlineExceeded, "not sent: it waited in the queue beyond its deadline");
    }
    return item.before_send ? item.before_send() : Status::Ok();
  }

  void OnAnswered(const ItemPtr& item, Result<net::Response> answer) {
    const bool patience = NoteHealth(answer);
    if (MayTryAgain(*item, answer, patience)) {
      flying.erase(item);
      waiting.push_front(item);
      return Pump();
    }
    Finish(item, answer);
  }

  void Finish(const ItemPtr& item, const Result<net::Response>& answer) {
    flying.erase(item);
    item->done = true;
    Pump();
    // Last: it may destroy us.
    std::exchange(item->on_answer, nullptr)(answer);
  }

  // Keeps the client's back-off state. Returns whether the server is in trouble, or out of reach.
  bool NoteHealth(const Result<net::Response>& answer) {
    std::optional<Duration> asked;
    if (answer.ok()) asked = RetryAfter(*answer);
    const int status = answer.ok() ? answer->status : 0;
    const bool trouble = status == 0 || status == 429 || (status >= 500 && asked) ||
                         (status >= 502 && status <= 504);
    if (!trouble) {
      backoff.Reset();
      return false;
    }
    // Of several requests that fail together only the first counts.
    if (Now() >= not_before) not_before = Now() + backoff.Next();
    if (asked) not_before = std::max(not_before, Now() + *asked);
    return true;
  }

  bool MayTryAgain(const Item& item, const Result<net::Response>& answer, bool patience) {
    if (item.attempts >= options.max_attempts) return false;
    if (answer.ok() && answer->status == 401) {
      return item.attempts == 1 && credentials.Refused(item.credential);
    }
    if (!patience || not_before >= item.deadline) return false;
    if (answer.ok()) {
      // 429 and Retry-After say that the request was turned away unread.
      return item.repeatable || answer->status == 429 || RetryAfter(*answer).has_value();
    }
    const Code code = answer.status().code();
    return item.repeatable && (code == Code::kUnavailable || code == Code::kDeadlineExceeded);
  }

  void Cancel(const ItemPtr& item) {
    if (item->done) return;
    item->done = true;
    item->call.Cancel();
    item->on_answer = nullptr;
    std::erase(waiting, item);
    flying.erase(item);
    Pump();
  }

  TaskRunner& runner;
  const ClientOptions options;
  std::deque<ItemPtr> waiting;
  std::unordered_set<ItemPtr> flying;
  Backoff backoff;
  MonotonicTime not_before{};
  bool wake_pending = false;
  net::HttpClient http;  // After what its calls refer to.
  CredentialSource credentials;
};

RequestQueue::RequestQueue(net::IoThread& io, TaskRunner& runner, const Config& config,
                           const ClientOptions& options)
    : core_(std::make_shared<Core>(io, runner, config, options)) {}

RequestQueue::~RequestQueue() = default;

TaskRunner& RequestQueue::runner() { return core_->runner; }

Operation RequestQueue::Submit(net::Request request, bool repeatable, OnAnswer on_answer,
                               BeforeSend before_send) {
  auto item = std::make_shared<Item>(Item{.request = std::move(request),
                                          .repeatable = repeatable,
                                          .on_answer = std::move(on_answer),
                                          .before_send = std::move(before_send),
                                          .deadline = core_->Now() + core_->options.deadline});
  Operation operation([weak = std::weak_ptr(core_), item] {
    if (const auto core = weak.lock()) core->Cancel(item);
  });
  if (core_->waiting.size() >= core_->options.max_waiting) {
    core_->runner.Post([weak = std::weak_ptr(core_), item] {
      if (!weak.lock() || std::exchange(item->done, true)) return;
      item->on_answer(Error(Code::kResourceExhausted, "the client's queue is full"));
    });
    return operation;
  }
  core_->waiting.push_back(std::move(item));
  core_->Pump();
  return operation;
}

// A stream that may have to wait for its credential first.
struct StreamState {
  bool dropped = false;
  net::Call call;
};

Operation RequestQueue::Stream(net::Request request, const net::Deadlines& deadlines,
                               net::StreamHandler handler) {
  const auto state = std::make_shared<StreamState>();
  Core* const core = core_.get();
  core->credentials.Get([core, state, request = std::move(request), deadlines,
                         handler = std::move(handler)](
                            const Result<CredentialSource::Credential>& credential) mutable {
    if (state->dropped) return;
    // Without one it is sent all the same: the server's 401 then says what is wrong.
    core->Dress(&request, credential.value_or({}));
    handler.on_head = [core, used = credential.value_or({}),
                       on_head = std::move(handler.on_head)](const net::Response& head) {
      if (head.status == 401) core->credentials.Refused(used);
      on_head(head);
    };
    state->call = core->http.Stream(std::move(request), {.deadlines = deadlines},
                                    std::move(handler));
  });
  return Operation([state] {
    state->dropped = true;
    state->call.Cancel();
  });
}

}  // namespace tessera::kube
