// SPDX-License-Identifier: Apache-2.0
// A hash table from addresses or handles of the driver to small values. Its memory comes from mmap,
// so it never calls the program's allocator. It doubles when it is 70 % full. The result of
// `HashKey`, modulo the capacity, is the index that a key prefers. Keys are not 0. Threads: one at
// a time.
#pragma once

#include <sys/mman.h>

#include <cstdint>

namespace tessera::limiter {

inline uint32_t HashOfHandle(uint64_t handle) {
  return uint32_t(handle * 0x9e3779b97f4a7c15u >> 32);
}

template <typename Value, uint32_t (*HashKey)(uint64_t key) = HashOfHandle>
class Table {
 public:
  struct Entry {
    uint64_t key;  // 0: empty
    Value value;
  };

  uint32_t capacity() const { return capacity_; }
  // REQUIRES: i < capacity(). An empty entry has the key 0.
  Entry* At(uint32_t i) { return &entries_[i]; }

  // Null: the table does not have the key.
  Entry* Find(uint64_t key) {
    if (count_ == 0) return nullptr;
    Entry* entry = EntryFor(key);
    return entry->key == 0 ? nullptr : entry;
  }

  // Returns the entry of the key. `*added` becomes true if the key is new, and false otherwise. The
  // value of a new key is empty. Null: the key is new, and the host's memory is exhausted.
  Entry* Add(uint64_t key, bool* added) {
    *added = false;
    if (Entry* known = Find(key); known != nullptr) return known;
    if (count_ * 10 >= capacity_ * 7 && !Grow()) return nullptr;
    Entry* entry = EntryFor(key);
    *entry = {key, Value{}};
    ++count_;
    *added = true;
    return entry;
  }

  // Moves later entries of the probe sequence up, so that the table needs no tombstones.
  void Erase(Entry* entry) {
    const uint32_t mask = capacity_ - 1;
    auto hole = uint32_t(entry - entries_);
    for (uint32_t i = (hole + 1) & mask; entries_[i].key != 0; i = (i + 1) & mask) {
      const uint32_t home = HashKey(entries_[i].key) & mask;
      if (((i - home) & mask) < ((i - hole) & mask)) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole].key = 0;
    --count_;
  }

  void Clear() {
    if (entries_ != nullptr) ::munmap(entries_, capacity_ * sizeof(Entry));
    entries_ = nullptr;
    capacity_ = count_ = 0;
  }

 private:
  static constexpr uint32_t kFirstCapacity = 128;

  Entry* EntryFor(uint64_t key) {
    const uint32_t mask = capacity_ - 1;
    uint32_t i = HashKey(key) & mask;
    while (entries_[i].key != 0 && entries_[i].key != key) i = (i + 1) & mask;
    return &entries_[i];
  }

  bool Grow() {
    const uint32_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
    void* memory = ::mmap(nullptr, capacity * sizeof(Entry), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    Entry* const old_entries = entries_;
    const uint32_t old_capacity = capacity_;
    entries_ = static_cast<Entry*>(memory);
    capacity_ = capacity;
    for (uint32_t i = 0; i < old_capacity; ++i) {
      if (old_entries[i].key != 0) *EntryFor(old_entries[i].key) = old_entries[i];
    }
    if (old_entries != nullptr) ::munmap(old_entries, old_capacity * sizeof(Entry));
    return true;
  }

  uint32_t count_;
  uint32_t capacity_;  // a power of two, or 0
  Entry* entries_;
};

}  // namespace tessera::limiter
