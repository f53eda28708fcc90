// SPDX-License-Identifier: Apache-2.0
// A local copy of a collection of the API server, kept current by a watch, with callbacks for each
// change. The struct T (objects.h) defines which fields are kept, so unused fields cost nothing.
//
//   kube::Informer<kube::PodObject> pods(client, {.ns = "default"}, kept_fields, *this);
//
// T is a struct with `ObjectMeta meta` and a function DecodeObject in its namespace.
// metadata_object.h has such structs for types that are known only at run time.
//
// Outline: an object of which the informer keeps only the UID. Suits handlers that keep the data
// themselves, and objects of which only arrival and deletion matter.
//
// Does not schedule work for changes: put a key into a KeyedQueue (keyed_queue.h). Threads: the
// client's runner, which also runs the callbacks. Ownership: client and handler outlive the
// informer; a handler may destroy the informer inside any call. The store is updated before a
// handler is called. If an object is unreadable, the informer reports an error and keeps the
// object's last known state. Cost of an object: its decoded size, or 60 bytes for an outline. Idle
// cost: one Watch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/uid.h"
#include "src/base/weak_ptr.h"
#include "src/kube/client.h"
#include "src/kube/objects.h"
#include "src/kube/watch.h"

namespace tessera::kube {

// "ns/name", or "name" without a namespace.
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
    // Also called if an object with the same name and another UID has replaced the object; OnAdded
    // follows.
    virtual void OnRemoved(const T& last) = 0;
    // An outline was added, changed or listed again. `now` is complete, but not kept.
    virtual void OnOutline(const T& now) { (void)now; }
    virtual void OnOutlineRemoved(const Uid& uid) { (void)uid; }
    // The store is complete. Called after the first list and after each later list.
    virtual void OnSynced() = 0;
    // For logs and metrics.
    virtual void OnError(const Status& status, Duration retry_in) = 0;
    // The watch works again.
    virtual void OnRecovered() {}
  };

  // Whether to keep only an outline of the object. The result may change with the object.
  using IsOutline = bool (*)(const T& object);

  // `query` has the namespace and the selectors, and the type if T serves several types
  // (T::Prepare). Otherwise type and encoding follow from T. `is_outline` may be null.
  Informer(Client& client, ListQuery query, KeptFields kept, Handler& handler,
           Watch::Options options = {}, IsOutline is_outline = nullptr)
      : kept_fields_(std::move(kept)), handler_(handler), is_outline_(is_outline) {
    if constexpr (requires { T::Prepare(&query); }) {
      T::Prepare(&query);
    } else {
      query.type = T::kType;
      query.encoding = Encoding::kProtobuf;
    }
    watch_ = std::make_unique<Watch>(client, std::move(query), static_cast<Watch::Delegate&>(*this),
                                     options);
  }

  // Whether the first list is complete.
  bool synced() const { return synced_; }
  size_t size() const { return entries_.size() + outlines_.size(); }
  // Valid until the object changes or is removed. Null for an outline.
  const T* Find(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second.object;
  }
  // Without outlines.
  template <typename F>
  void ForEach(const F& f) const {
    for (const auto& [key, entry] : entries_) f(entry.object);
  }

 private:
  struct Entry {
    T object;
    uint64_t generation;  // list_generation_ when it was last listed or changed
  };

  void OnListBegin() override { ++list_generation_; }

  void OnListEnd() override {
    std::vector<std::string> gone;
    for (const auto& [key, entry] : entries_) {
      if (entry.generation != list_generation_) gone.push_back(key);
    }
    std::vector<Uid> outlines_gone;
    for (const auto& [uid, generation] : outlines_) {
      if (generation != list_generation_) outlines_gone.push_back(uid);
    }
    const auto weak = weak_.Get();
    for (const std::string& key : gone) {
      Remove(key);
      if (!weak) return;
    }
    for (const Uid& uid : outlines_gone) {
      RemoveOutline(uid);
      if (!weak) return;
    }
    synced_ = true;
    handler_.OnSynced();
  }

  void OnObject(const RawObject& raw) override {
    T now;
    const Status status = DecodeObject(raw, kept_fields_, &now);
    const std::string key = KeyOf(now.meta);
    const auto found = entries_.find(key);
    if (found != entries_.end()) found->second.generation = list_generation_;
    if (!status.ok()) {
      const auto outline = outlines_.find(now.meta.uid);
      if (outline != outlines_.end()) outline->second = list_generation_;
      return handler_.OnError(status, Duration::zero());
    }
    const auto weak = weak_.Get();
    if (is_outline_ != nullptr) {
      if (is_outline_(now)) {
        Remove(key);
        if (!weak) return;
        outlines_[now.meta.uid] = list_generation_;
        return handler_.OnOutline(now);
      }
      RemoveOutline(now.meta.uid);
      if (!weak) return;
    }
    if (found == entries_.end()) return Insert(key, std::move(now));
    T& known = found->second.object;
    if (known.meta.resource_version == now.meta.resource_version) return;
    if (known.meta.uid != now.meta.uid) {
      Remove(key);
      if (weak) Insert(key, std::move(now));
      return;
    }
    const T before = std::exchange(known, std::move(now));
    handler_.OnChanged(before, known);
  }

  void OnDeleted(const RawObject& raw) override {
    ObjectMeta meta;
    const Status status = DecodeMeta(raw, &meta);
    if (!status.ok()) return handler_.OnError(status, Duration::zero());
    const auto weak = weak_.Get();
    Remove(KeyOf(meta));
    if (weak) RemoveOutline(meta.uid);
  }

  void OnError(const Status& status, Duration retry_in) override {
    handler_.OnError(status, retry_in);
  }

  void OnRecovered() override { handler_.OnRecovered(); }

  void Insert(const std::string& key, T object) {
    const auto at = entries_.emplace(key, Entry{std::move(object), list_generation_}).first;
    handler_.OnAdded(at->second.object);
  }

  void Remove(const std::string& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    const T last = std::move(found->second.object);
    entries_.erase(found);
    handler_.OnRemoved(last);
  }

  void RemoveOutline(const Uid& uid) {
    if (outlines_.erase(uid) > 0) handler_.OnOutlineRemoved(uid);
  }

  const KeptFields kept_fields_;
  Handler& handler_;
  const IsOutline is_outline_;
  std::unordered_map<std::string, Entry> entries_;
  std::unordered_map<Uid, uint64_t> outlines_;  // to the generation, as in Entry
  uint64_t list_generation_ = 0;
  bool synced_ = false;
  std::unique_ptr<Watch> watch_;
  WeakPtrFactory<Informer> weak_{this};
};

}  // namespace tessera::kube
