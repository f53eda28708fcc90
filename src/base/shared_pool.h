// SPDX-License-Identifier: Apache-2.0
// Keeps one copy of equal values, for tables in which many objects have equal parts, such as the
// pods of a workload or the nodes of one type.
//
// Threads: one; values that are never updated may be copied and read by any thread. Ownership:
// values may outlive their pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>

namespace tessera {

// A value that its copies share until one of them is updated. Comparison is by value, and immediate
// for copies that share the value.
template <typename T>
class SharedValue {
 public:
  // T(), without an allocation.
  SharedValue() : value_(Default()) {}
  explicit SharedValue(T value) : value_(std::make_shared<T>(std::move(value))) {}

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  bool operator==(const SharedValue& other) const {
    return value_ == other.value_ || *value_ == *other.value_;
  }

  // Changes this copy alone.
  template <typename Change>
  void Update(const Change& change) {
    if (value_.use_count() != 1) value_ = std::make_shared<T>(*value_);
    change(*value_);
    if (*value_ == *Default()) value_ = Default();
  }

 private:
  template <typename>
  friend class SharedPool;

  static const std::shared_ptr<T>& Default() {
    static const auto kDefault = std::make_shared<T>();
    return kDefault;
  }

  std::shared_ptr<T> value_;
};

// A set with one copy of each value. T needs operator< and operator==. Cost: Get makes O(log n)
// comparisons for n different values. The pool drops unused values each time the number of values
// has doubled.
template <typename T>
class SharedPool {
 public:
  // Returns the pool's value that equals `value`. If there is none, adds and returns `value`.
  SharedValue<T> Get(const SharedValue<T>& value) {
    if (const auto known = values_.find(value); known != values_.end()) return *known;
    if (values_.size() >= cleanup_size_) {
      std::erase_if(values_, [](const auto& known) { return known.value_.use_count() == 1; });
      cleanup_size_ = std::max(kMinCleanupSize, 2 * values_.size());
    }
    return *values_.insert(value).first;
  }
  // Also counts unused values that have not been dropped yet.
  size_t size() const { return values_.size(); }

 private:
  static constexpr size_t kMinCleanupSize = 64;
  struct ByValue {
    bool operator()(const SharedValue<T>& a, const SharedValue<T>& b) const {
      return a.value_ != b.value_ && *a < *b;
    }
  };

  std::set<SharedValue<T>, ByValue> values_;
  size_t cleanup_size_ = kMinCleanupSize;
};

}  // namespace tessera
