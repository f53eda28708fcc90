// SPDX-License-Identifier: Apache-2.0
#include "src/kube/watch.h"

#include <algorithm>
#include <random>
#include <utility>

#include "src/kube/api_error.h"
#include "src/kube/backoff.h"
#include "src/kube/event_reader.h"
#include "src/net/http.h"

namespace tessera::kube {
namespace {

constexpr size_t kMaxErrorBody = 64 << 10;
// The maximum number of objects in a page. Even with large objects, a response stays below the
// client's limit.
constexpr int kMaxPage = 8000;

}  // namespace

// States: list or stream the initial objects -> stream changes -> wait -> one of the first two
// states again. A delegate call may destroy the Watch; `delegate` is null afterwards.
struct Watch::Core : public std::enable_shared_from_this<Watch::Core> {
  Core(Client& c, ListQuery query, Delegate& d, Options o)
      : client(c), page_query(std::move(query)), delegate(&d), options(o) {}

  MonotonicTime Now() const { return client.runner().clock().Now(); }

  // A callback for `method` that does nothing after the Watch is destroyed.
  template <typename... Args>
  auto WeakCallback(void (Core::*method)(Args...)) {
    return [weak = weak_from_this(), method](auto&&... args) {
      const auto self = weak.lock();
      if (self && self->delegate) (self.get()->*method)(std::forward<decltype(args)>(args)...);
    };
  }

  void ListOrStream() {
    const bool may_stream = options.stream_initial && Now() >= list_in_pages_until;
    if (!version.empty() || may_stream) return StartStream();
    ListNextPage();
  }

  void ListNextPage() { list = client.List(page_query, WeakCallback(&Core::OnPage)); }

  void OnPage(Result<ListPage> page) {
    if (!page.ok()) {
      // The continue token expired between two pages. Starts again with larger pages, so that a
      // slow list completes before its token expires.
      const bool token_expired =
          page.status().code() == Code::kOutOfRange && !page_query.continue_token.empty();
      if (token_expired) page_query.limit = std::min(kMaxPage, page_query.limit * 4);
      page_query.continue_token.clear();
      return Retry(page.status(), Duration::zero());
    }
    if (!ReportRecovered()) return;
    if (page_query.continue_token.empty()) delegate->OnListBegin();
    for (size_t i = 0; delegate && i < page->items.size(); ++i) delegate->OnObject(page->items[i]);
    if (!delegate) return;
    page_query.continue_token = page->continue_token;
    if (!page_query.continue_token.empty()) return ListNextPage();
    version = page->resource_version;
    backoff.Reset();
    delegate->OnListEnd();
    if (delegate) StartStream();
  }

  std::string StreamTarget() {
    ListQuery query = page_query;
    query.limit = 0;
    query.resource_version = version;
    std::uniform_int_distribution<int64_t> jitter(0, options.watch_timeout.count());
    const auto watch_timeout = std::chrono::duration_cast<std::chrono::seconds>(
        options.watch_timeout + Duration(jitter(random)));
    // sendInitialEvents is accepted only with this resourceVersionMatch (ValidateListOptions in
    // k8s.io/apimachinery, pkg/apis/meta/internalversion/validation). The timeout is random, as in
    // client-go, so that the watches of all clients do not end at once.
    return fmt::format(
        "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={}{}&{}",
        CollectionPath(page_query.type, page_query.ns), std::max<int64_t>(1, watch_timeout.count()),
        delivers_initial ? "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" : "",
        QueryString(query));
  }

  void StartStream() {
    delivers_initial = version.empty();
    head = {};
    reader.reset();
    ++stream_number;
    stream = client.Stream(StreamTarget(), page_query,
                           {.header = std::min(net::Deadlines().header, options.stall_timeout),
                            .body = Duration::zero(),
                            .stall = options.stall_timeout},
                           {.on_head = WeakCallback(&Core::OnHead),
                            .on_data = WeakCallback(&Core::OnData),
                            .on_end = WeakCallback(&Core::OnEnd)});
    progress_at = Now();
    if (delivers_initial) CheckProgressIn(options.initial_stall_timeout);
  }

  // A large collection may take minutes, so only a stream without new data is abandoned.
  void CheckProgressIn(Duration wait) {
    client.runner().PostDelayed(wait, [weak = weak_from_this(), number = stream_number] {
      const auto self = weak.lock();
      if (!self || !self->delegate || !self->delivers_initial || self->stream_number != number)
        return;
      const Duration remaining =
          self->progress_at + self->options.initial_stall_timeout - self->Now();
      if (remaining > Duration::zero()) return self->CheckProgressIn(remaining);
      self->list_in_pages_until = self->Now() + self->options.paging_period;
      self->AbortStream(Error(Code::kDeadlineExceeded,
                              "the stream of initial objects stalled: listing in pages instead"));
    });
  }

  void OnHead(const net::Response& response) {
    head = response;
    if (head.status != 200) return;
    reader.emplace(EncodingOf(head.headers.Get("Content-Type")), options.max_event);
    if (ReportRecovered() && delivers_initial) delegate->OnListBegin();
  }

  // Returns false if the delegate has destroyed the Watch.
  bool ReportRecovered() {
    if (std::exchange(error_reported, false)) delegate->OnRecovered();
    return delegate != nullptr;
  }

  void OnData(std::string_view piece) {
    progress_at = Now();
    if (!reader) {
      head.body.append(piece.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, head.body.size())));
      return;
    }
    reader->Put(piece);
    while (delegate) {
      auto event = reader->Next();
      if (!event.ok()) return AbortStream(event.status());
      if (!event->has_value()) return;
      if ((*event)->type == EventType::kError) return OnErrorEvent(StatusOf(**event));
      OnEvent(**event);
    }
  }

  // The server finds that the version is too old only after its response 200, so the error 410
  // comes as an event.
  void OnErrorEvent(const ServerStatus& status) {
    stream.Cancel();
    Retry(ErrorOf(status, 500), RetryAfter(status).value_or(Duration::zero()));
  }

  void OnEvent(const WatchEvent& event) {
    backoff.Reset();
    const bool bookmark = event.type == EventType::kBookmark;
    // The versions of initial objects are old and in no order, so they are not a position to resume
    // from.
    if (!delivers_initial || (bookmark && event.object.EndsInitialEvents())) {
      if (std::string new_version = event.object.ResourceVersion(); !new_version.empty()) {
        version = std::move(new_version);
      }
    }
    if (bookmark) {
      if (delivers_initial && !version.empty()) {
        delivers_initial = false;
        delegate->OnListEnd();
      }
      return;
    }
    if (event.type == EventType::kDeleted) return delegate->OnDeleted(event.object);
    delegate->OnObject(event.object);
  }

  void OnEnd(const Status& status) {
    if (!status.ok()) return Retry(status, Duration::zero());
    if (head.status != 200) {
      const Status rejection = ErrorOf(head);
      if (delivers_initial && rejection.code() == Code::kInvalidArgument) {
        // This server does not support initial streams: ValidateListOptions answers 422 without the
        // feature gate WatchList.
        list_in_pages_until = Now() + options.paging_period;
        return ListNextPage();
      }
      return Retry(rejection, RetryAfter(head).value_or(Duration::zero()));
    }
    // The server ended the watch after its timeout. The short wait prevents a busy loop if the
    // server ends each stream at once.
    RunLater(backoff.Next());
  }

  void AbortStream(const Status& status) {
    stream.Cancel();
    Retry(status, Duration::zero());
  }

  void Retry(const Status& status, Duration min_wait) {
    ++stream_number;  // the timers of earlier streams then do nothing
    if (status.code() == Code::kOutOfRange) {
      // The server answers again, possibly after a restart, so the next wait is short.
      if (!version.empty()) backoff.Reset();
      // The server no longer knows this version. Only a new list gives a version that it knows.
      version.clear();
    }
    const Duration wait = std::max(min_wait, backoff.Next());
    RunLater(wait);
    error_reported = true;
    delegate->OnError(status, wait);
  }

  void RunLater(Duration wait) {
    client.runner().PostDelayed(wait, WeakCallback(&Core::ListOrStream));
  }

  Client& client;
  ListQuery page_query;  // continue_token is the position between pages
  Delegate* delegate;
  Options options;
  std::mt19937_64 random{client.NextSeed()};
  Backoff backoff{client.NextSeed()};
  std::string version;            // of the last event; empty: list everything
  bool delivers_initial = false;  // the stream still delivers initial objects
  bool error_reported = false;
  int stream_number = 0;
  MonotonicTime progress_at{};          // time of the stream's last data
  MonotonicTime list_in_pages_until{};  // list in pages until then
  Operation list;
  Operation stream;
  net::Response head;
  std::optional<EventReader> reader;  // of an accepted stream
};

Watch::Watch(Client& client, ListQuery query, Delegate& delegate, Options options)
    : core_(std::make_shared<Core>(client, std::move(query), delegate, options)) {
  core_->ListOrStream();
}

Watch::~Watch() {
  core_->delegate = nullptr;
  core_->list.Cancel();
  core_->stream.Cancel();
}

}  // namespace tessera::kube
