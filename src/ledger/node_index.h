// SPDX-License-Identifier: Apache-2.0
// Inside the room: nodes by name, for requests that name thousands of them. A lookup in a map waits
// for memory three or four times; here all names of a request wait together.
//
// Threads: one. Ownership: entries stay where they are while they are in it. Cost: Erase looks at
// all slots, because nodes go rarely.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::ledger {

struct NodeEntry;

class NodeIndex {
 public:
  // REQUIRES: no entry of that name.
  void Insert(std::string_view name, const NodeEntry* entry);
  void Erase(std::string_view name);
  // Null where there is none.
  const NodeEntry* Find(std::string_view name) const;
  // The same for each; `out` is as long as `names`.
  void Find(std::span<const std::string_view> names, std::span<const NodeEntry*> out) const;

 private:
  // Half of them are empty at least. A name's slot is the first one from its hash on that is free.
  struct Slot {
    uint64_t hash = 0;
    std::string_view name;
    const NodeEntry* entry = nullptr;
  };
  // Eight bytes at a time: the library's takes four times as long for such names. Whoever can name
  // nodes so that they meet here is an administrator.
  static uint64_t HashOf(std::string_view name) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
    uint64_t hash = name.size() * kFactor, word;
    const char* at = name.data();
    size_t left = name.size();
    for (; left >= sizeof(word); at += sizeof(word), left -= sizeof(word)) {
      std::memcpy(&word, at, sizeof(word));
      hash = (hash ^ word) * kFactor;
      hash ^= hash >> 29;
    }
    for (word = 0; left > 0; --left) word = word << 8 | static_cast<unsigned char>(*at++);
    hash = (hash ^ word) * kFactor;
    return hash ^ hash >> 32;
  }
  size_t PlaceOf(uint64_t hash) const { return hash & (slots_.size() - 1); }
  const Slot* FindSlot(std::string_view name, uint64_t hash) const;
  void Put(Slot slot);

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  size_t size_ = 0;
};

}  // namespace tessera::ledger
