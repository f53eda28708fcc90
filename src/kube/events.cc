// SPDX-License-Identifier: Apache-2.0
#include "src/kube/events.h"

#include <algorithm>
#include <list>
#include <set>
#include <unordered_map>
#include <utility>

#include "src/base/strings.h"

namespace tessera::kube {
namespace {

constexpr std::string_view kAggregatedPrefix = "(combined from similar events): ";

// A map that drops the least recently used entry.
template <typename V>
class LruMap {
 public:
  explicit LruMap(size_t max_entries) : max_entries_(max_entries) {}

  V& operator[](const std::string& key) {
    const auto found = iterators_.find(key);
    if (found != iterators_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().second;
    }
    entries_.emplace_front(key, V());
    iterators_[key] = entries_.begin();
    if (entries_.size() > max_entries_) {
      iterators_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return entries_.front().second;
  }

 private:
  const size_t max_entries_;
  std::list<std::pair<std::string, V>> entries_;
  std::unordered_map<std::string, typename std::list<std::pair<std::string, V>>::iterator>
      iterators_;
};

// Recent messages of one object and reason.
struct SimilarEvents {
  MonotonicTime since{};
  std::set<std::string> messages;
};
// An event on the server.
struct RecordedEvent {
  std::string name;  // "": not created yet
  int64_t count = 0;
};
// A token bucket for the Events of one object.
struct TokenBucket {
  double tokens = -1;  // below 0: not used yet
  MonotonicTime refilled_at{};
};

}  // namespace

struct EventRecorder::Core {
  Core(Client& c, Options o, OnError f)
      : client(c),
        options(std::move(o)),
        on_error(std::move(f)),
        similar(options.max_objects),
        recorded(options.max_objects),
        buckets(options.max_objects) {}

  MonotonicTime Now() const { return client.runner().clock().Now(); }

  bool TakeToken(const std::string& object) {
    TokenBucket& bucket = buckets[object];
    const MonotonicTime now = Now();
    const auto refilled = std::chrono::duration<double>(now - bucket.refilled_at) /
                          std::chrono::duration<double>(options.refill);
    bucket.tokens = bucket.tokens < 0 ? options.burst
                                      : std::min<double>(options.burst, bucket.tokens + refilled);
    bucket.refilled_at = now;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }

  // Whether to aggregate this Event, because there were too many similar Events.
  bool ShouldAggregate(const std::string& reason_key, const std::string& message) {
    SimilarEvents& recent = similar[reason_key];
    if (recent.messages.empty() || Now() - recent.since > options.window) {
      recent.messages.clear();
      recent.since = Now();
    }
    if (recent.messages.contains(message)) return false;
    if (recent.messages.size() >= static_cast<size_t>(options.max_similar)) return true;
    recent.messages.insert(message);
    return false;
  }

  void Record(const InvolvedObject& object, EventKind kind, std::string_view reason,
              std::string_view text) {
    const std::string object_key =
        fmt::format("{}\n{}\n{}\n{}", object.kind, object.ns, object.name, object.uid);
    if (!TakeToken(object_key)) return;
    std::string message = TruncateUtf8(std::string(text), kMaxEventMessage);
    const std::string reason_key =
        fmt::format("{}\n{}\n{}", object_key, static_cast<int>(kind), reason);
    std::string key = reason_key + "\n" + message;
    if (ShouldAggregate(reason_key, message)) {
      message = TruncateUtf8(std::string(kAggregatedPrefix) + message, kMaxEventMessage);
      key = reason_key;  // all aggregated Events increment one Event
    }
    RecordedEvent& event = recorded[key];
    ++event.count;
    const std::string ns = object.EventNamespace();
    if (event.count > 1) return IncreaseCount(ns, event, message, object, kind, reason);
    const int64_t nanos = client.runner().clock().WallNow().time_since_epoch().count();
    // client-go names Events like this, too: the object and the time in nanoseconds.
    event.name = fmt::format("{}.{:x}", object.name, nanos + serial++);
    Create(ns, ObjectOf(event, message, object, kind, reason));
  }

  Json ObjectOf(const RecordedEvent& event, const std::string& message,
                const InvolvedObject& object, EventKind kind, std::string_view reason) const {
    return MakeEventObject(event.name, object, {kind, reason, message},
                           {options.component, options.instance, ""},
                           client.runner().clock().WallNow(), event.count);
  }

  void Create(const std::string& ns, const Json& body) {
    const int64_t number = ++last_operation;
    operations[number] =
        client.Create({kEvents, "", ns, ""}, body, [this, number](const auto& answer) {
          const Status status = answer.status();
          operations.erase(number);
          if (!status.ok() && on_error) on_error(status);
        });
  }

  void IncreaseCount(const std::string& ns, const RecordedEvent& event, const std::string& message,
                     const InvolvedObject& object, EventKind kind, std::string_view reason) {
    const Json patch = Json::MakeObject(
        {{"count", Json::Int(event.count)},
         {"message", Json::String(message)},
         {"lastTimestamp", Json::String(Rfc3339(client.runner().clock().WallNow()))}});
    // The API server deletes an Event after an hour; then the patch fails with NOT_FOUND.
    Json new_event = ObjectOf(event, message, object, kind, reason);
    const int64_t number = ++last_operation;
    operations[number] = client.Patch(
        {kEvents, event.name, ns, ""}, PatchKind::kMerge, patch, {},
        [this, number, ns, new_event = std::move(new_event)](const Result<Json>& answer) {
          const Status status = answer.status();
          operations.erase(number);
          if (status.code() == Code::kNotFound) return Create(ns, new_event);
          if (!status.ok() && on_error) on_error(status);
        });
  }

  Client& client;
  const Options options;
  const OnError on_error;
  LruMap<SimilarEvents> similar;   // by object and reason
  LruMap<RecordedEvent> recorded;  // by object, reason and message
  LruMap<TokenBucket> buckets;     // by object
  int64_t serial = 0;              // makes the names of simultaneous Events differ
  int64_t last_operation = 0;
  std::unordered_map<int64_t, Operation> operations;
};

EventRecorder::EventRecorder(Client& client, Options options, OnError on_error)
    : core_(std::make_unique<Core>(client, std::move(options), std::move(on_error))) {}

EventRecorder::~EventRecorder() = default;

void EventRecorder::Record(const InvolvedObject& object, EventKind kind, std::string_view reason,
                           std::string_view message) {
  core_->Record(object, kind, reason, message);
}

}  // namespace tessera::kube
