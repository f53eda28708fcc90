// SPDX-License-Identifier: Apache-2.0
#include "src/kube/watch.h"

#include <algorithm>
#include <random>
#include <utility>

#include "src/kube/api_error.h"
#include "src/kube/backoff.h"
#include "src/net/http.h"

namespace tessera::kube {
namespace {

constexpr size_t kMaxErrorBody = 64 << 10;

std::string VersionOf(const Json& object) {
  const Json* metadata = object.Find("metadata");
  if (metadata == nullptr || !metadata->is_object()) return "";
  return metadata->StringAt("resourceVersion").value_or("");
}

}  // namespace

// Listing -> streaming -> waiting -> one of the two again. Each delegate call may destroy the Watch:
// `delegate` is null afterwards.
struct Watch::Core : public std::enable_shared_from_this<Watch::Core> {
  Core(Client& c, ListQuery query, Delegate& d, Options o)
      : client(c), what(std::move(query)), delegate(&d), options(o) {}

  // Binds a member function to us, as long as the Watch lives.
  template <typename... Args>
  auto Weakly(void (Core::*method)(Args...)) {
    return [weak = weak_from_this(), method](auto&&... args) {
      const auto self = weak.lock();
      if (self && self->delegate) (self.get()->*method)(std::forward<decltype(args)>(args)...);
    };
  }

  void Next() { version.empty() ? ListNextPage() : StartStream(); }

  void ListNextPage() { list = client.List(what, Weakly(&Core::OnPage)); }

  void OnPage(Result<ListPage> page) {
    if (!page.ok()) {
      // A token that expired between pages: from the start.
      what.continue_token.clear();
      return Retry(page.status(), Duration::zero());
    }
    if (what.continue_token.empty()) delegate->OnListBegin();
    for (size_t i = 0; delegate && i < page->items.size(); ++i) delegate->OnObject(page->items[i]);
    if (!delegate) return;
    what.continue_token = page->continue_token;
    if (!what.continue_token.empty()) return ListNextPage();
    version = page->resource_version;
    backoff.Reset();
    delegate->OnListEnd();
    if (delegate) StartStream();
  }

  void StartStream() {
    ListQuery query = what;
    query.limit = 0;
    query.resource_version = version;
    std::uniform_int_distribution<int64_t> jitter(0, options.round.count());
    const auto round = std::chrono::duration_cast<std::chrono::seconds>(
        options.round + Duration(jitter(random)));
    const std::string target =
        CollectionPath(what.type, what.ns) +
        fmt::format("?watch=1&allowWatchBookmarks=true&timeoutSeconds={}&{}",
                    std::max<int64_t>(1, round.count()), QueryString(query));
    buffer.clear();
    head = {};
    stream = client.Stream(target, {.body = Duration::zero(), .stall = options.stall},
                           {.on_head = Weakly(&Core::OnHead),
                            .on_data = Weakly(&Core::OnData),
                            .on_end = Weakly(&Core::OnEnd)});
  }

  void OnHead(const net::Response& response) { head = response; }

  void OnData(std::string_view piece) {
    if (head.status != 200) {
      head.body.append(piece.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, head.body.size())));
      return;
    }
    buffer.append(piece);
    size_t begin = 0;
    // Only the new piece can hold a line's end.
    size_t end = buffer.find('\n', buffer.size() - piece.size());
    for (; end != std::string::npos; end = buffer.find('\n', begin)) {
      const std::string_view line = std::string_view(buffer).substr(begin, end - begin);
      const Status status = line.empty() ? Status::Ok() : OnEvent(line);
      if (!delegate) return;
      if (!status.ok()) return Break(status);
      begin = end + 1;
    }
    buffer.erase(0, begin);
    if (buffer.size() > options.max_event) {
      Break(Error(Code::kResourceExhausted, "an event is longer than {} bytes", options.max_event));
    }
  }

  Status OnEvent(std::string_view line) {
    ASSIGN_OR_RETURN(const Json event, ParseJson(line, {.max_bytes = options.max_event}));
    const Json* object = event.Find("object");
    const std::string type = event.is_object() ? event.StringAt("type").value_or("") : "";
    if (object == nullptr || !object->is_object()) {
      return Error(Code::kInvalidArgument, "an event of type \"{}\" has no object", type);
    }
    if (type == "ERROR") return ErrorOfStatusObject(*object, 500);
    if (type != "ADDED" && type != "MODIFIED" && type != "DELETED" && type != "BOOKMARK") {
      return Error(Code::kInvalidArgument, "unknown event type \"{}\"", type);
    }
    if (std::string fresh = VersionOf(*object); !fresh.empty()) version = std::move(fresh);
    backoff.Reset();
    if (type == "DELETED") {
      delegate->OnDeleted(*object);
    } else if (type != "BOOKMARK") {
      delegate->OnObject(*object);
    }
    return Status::Ok();
  }

  void OnEnd(const Status& status) {
    if (!status.ok()) return Retry(status, Duration::zero());
    if (head.status != 200) {
      return Retry(ErrorOf(head), RetryAfter(head).value_or(Duration::zero()));
    }
    // The round is over. The short wait keeps a server that ends each stream at once from spinning us.
    RunLater(backoff.Next());
  }

  void Break(const Status& status) {
    stream.Cancel();
    Retry(status, Duration::zero());
  }

  void Retry(const Status& status, Duration at_least) {
    // Only a new list brings a version that the server still has.
    if (status.code() == Code::kOutOfRange) version.clear();
    const Duration wait = std::max(at_least, backoff.Next());
    RunLater(wait);
    delegate->OnTrouble(status, wait);
  }

  void RunLater(Duration wait) { client.runner().PostDelayed(wait, Weakly(&Core::Next)); }

  Client& client;
  ListQuery what;  // continue_token holds the place between pages
  Delegate* delegate;
  const Options options;
  std::minstd_rand random{std::random_device{}()};
  Backoff backoff;
  std::string version;  // of the last thing seen; empty: a list is due
  Operation list;
  net::Call stream;
  net::Response head;
  std::string buffer;  // the beginning of a line
};

Watch::Watch(Client& client, ListQuery what, Delegate& delegate, Options options)
    : core_(std::make_shared<Core>(client, std::move(what), delegate, options)) {
  core_->Next();
}

Watch::~Watch() {
  core_->delegate = nullptr;
  core_->list.Cancel();
  core_->stream.Cancel();
}

}  // namespace tessera::kube
