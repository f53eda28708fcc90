// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/node_index.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::ledger {
namespace {

// How many lookups overlap: more than a processor can have cache misses in flight.
constexpr size_t kBlock = 32;

}  // namespace

void NodeIndex::Put(Slot slot) {
  size_t at = PlaceOf(slot.hash);
  while (slots_[at].entry != nullptr) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = slot;
}

void NodeIndex::Insert(std::string_view name, const NodeEntry* entry) {
  if (++size_ * 2 > slots_.size()) {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
    for (const Slot& slot : old) {
      if (slot.entry != nullptr) Put(slot);
    }
  }
  Put({HashOf(name), name, entry});
}

void NodeIndex::Erase(std::string_view name) {
  if (FindSlot(name, HashOf(name)) == nullptr) return;
  --size_;
  // Rehashes all entries, because linear probing may have placed entries behind the erased entry.
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size()));
  for (const Slot& slot : old) {
    if (slot.entry != nullptr && slot.name != name) Put(slot);
  }
}

const NodeIndex::Slot* NodeIndex::FindSlot(std::string_view name, uint64_t hash) const {
  for (size_t at = PlaceOf(hash); slots_[at].entry != nullptr;
       at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash == hash && slots_[at].name == name) return &slots_[at];
  }
  return nullptr;
}

const NodeEntry* NodeIndex::Find(std::string_view name) const {
  const Slot* slot = FindSlot(name, HashOf(name));
  return slot == nullptr ? nullptr : slot->entry;
}

void NodeIndex::Find(std::span<const std::string_view> names,
                     std::span<const NodeEntry*> out) const {
  std::array<uint64_t, kBlock> hashes;
  for (size_t begin = 0; begin < names.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, names.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashOf(names[begin + i]);
      __builtin_prefetch(&slots_[PlaceOf(hashes[i])]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Slot& slot = slots_[PlaceOf(hashes[i])];
      __builtin_prefetch(slot.name.data());
      __builtin_prefetch(slot.entry);
    }
    for (size_t i = 0; i < count; ++i) {
      const Slot* slot = FindSlot(names[begin + i], hashes[i]);
      out[begin + i] = slot == nullptr ? nullptr : slot->entry;
    }
  }
}

}  // namespace tessera::ledger
