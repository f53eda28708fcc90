// SPDX-License-Identifier: Apache-2.0
// A copy of a collection of objects that follows the API server, and tells what changes in it. The
// struct T (objects.h) says what is kept of each object: what nobody reads costs nothing.
//
//   kube::Informer<kube::PodObject> pods(client, {.field_selector = "spec.nodeName=n1"}, keep, *this);
//
// Not for deciding what to do about a change: put a key into a KeyedQueue (keyed_queue.h).
// Threads, callbacks: the client's runner. Ownership: client and handler must outlive it; a handler
// may destroy the informer inside any call. The store already has the new state when a handler is
// called. An object that cannot be read is told as trouble; what was known of it stays.
// Idle cost: that of a Watch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/kube/client.h"
#include "src/kube/objects.h"
#include "src/kube/watch.h"

namespace tessera::kube {

// "ns/name", or "name" where there is no namespace.
inline std::string KeyOf(std::string_view ns, std::string_view name) {
  std::string key(ns);
  if (!key.empty()) key += '/';
  return key.append(name);
}
inline std::string KeyOf(const ObjectMeta& meta) { return KeyOf(meta.ns, meta.name); }

template <typename T>
class Informer final : private Watch::Delegate {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnAdded(const T& now) = 0;
    virtual void OnChanged(const T& before, const T& now) = 0;
    // Also for one that was replaced by another of its name (uid): OnAdded follows.
    virtual void OnRemoved(const T& last) = 0;
    // The store holds everything: after the start, and each time that a list was due again.
    virtual void OnSynced() = 0;
    // For logs and metrics.
    virtual void OnTrouble(const Status& status, Duration retry_in) = 0;
    // The copy follows the server again.
    virtual void OnRecovered() {}
  };

  // `what` says namespace and selectors; type and encoding are those of T.
  Informer(Client& client, ListQuery what, Keep keep, Handler& handler, Watch::Options options = {})
      : keep_(std::move(keep)), handler_(handler) {
    what.type = T::kType;
    what.encoding = Encoding::kProtobuf;
    watch_ = std::make_unique<Watch>(client, std::move(what), static_cast<Watch::Delegate&>(*this),
                                     options);
  }
  ~Informer() override { *alive_ = false; }

  // Whether everything has come once.
  bool synced() const { return synced_; }
  size_t size() const { return entries_.size(); }
  // Valid until the object changes or goes.
  const T* Find(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second.object;
  }
  template <typename F>
  void ForEach(const F& f) const {
    for (const auto& [key, entry] : entries_) f(entry.object);
  }

 private:
  struct Entry {
    T object;
    uint64_t round;  // of the list that it was last seen in
  };

  void OnListBegin() override { ++round_; }

  void OnListEnd() override {
    std::vector<std::string> gone;
    for (const auto& [key, entry] : entries_) {
      if (entry.round != round_) gone.push_back(key);
    }
    const auto alive = alive_;
    for (const std::string& key : gone) {
      Remove(key);
      if (!*alive) return;
    }
    synced_ = true;
    handler_.OnSynced();
  }

  void OnObject(const RawObject& raw) override {
    T now;
    const Status status = DecodeObject(raw, keep_, &now);
    const std::string key = KeyOf(now.meta);
    const auto found = entries_.find(key);
    if (found != entries_.end()) found->second.round = round_;
    if (!status.ok()) return handler_.OnTrouble(status, Duration::zero());
    if (found == entries_.end()) return Insert(key, std::move(now));
    T& known = found->second.object;
    if (known.meta.resource_version == now.meta.resource_version) return;
    if (known.meta.uid != now.meta.uid) {
      const auto alive = alive_;
      Remove(key);
      if (*alive) Insert(key, std::move(now));
      return;
    }
    const T before = std::exchange(known, std::move(now));
    handler_.OnChanged(before, known);
  }

  void OnDeleted(const RawObject& raw) override {
    ObjectMeta meta;
    const Status status = DecodeMeta(raw, &meta);
    if (!status.ok()) return handler_.OnTrouble(status, Duration::zero());
    Remove(KeyOf(meta));
  }

  void OnTrouble(const Status& status, Duration retry_in) override {
    handler_.OnTrouble(status, retry_in);
  }

  void OnRecovered() override { handler_.OnRecovered(); }

  void Insert(const std::string& key, T object) {
    const auto at = entries_.emplace(key, Entry{std::move(object), round_}).first;
    handler_.OnAdded(at->second.object);
  }

  void Remove(const std::string& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    const T last = std::move(found->second.object);
    entries_.erase(found);
    handler_.OnRemoved(last);
  }

  const Keep keep_;
  Handler& handler_;
  std::unordered_map<std::string, Entry> entries_;
  uint64_t round_ = 0;
  bool synced_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::unique_ptr<Watch> watch_;
};

}  // namespace tessera::kube
