// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/node_index.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::ledger {
namespace {

// The number of lookups that overlap. It exceeds the number of cache misses that a processor can
// have in flight.
constexpr size_t kBlock = 32;

}  // namespace

void NodeIndex::Put(HashBucket bucket) {
  size_t at = FirstBucketOf(bucket.hash);
  while (buckets_[at].entry != nullptr) at = (at + 1) & (buckets_.size() - 1);
  buckets_[at] = bucket;
}

void NodeIndex::Insert(std::string_view name, const NodeEntry* entry) {
  if (++size_ * 2 > buckets_.size()) {
    const std::vector<HashBucket> old =
        std::exchange(buckets_, std::vector<HashBucket>(buckets_.size() * 2));
    for (const HashBucket& bucket : old) {
      if (bucket.entry != nullptr) Put(bucket);
    }
  }
  Put({HashOf(name), name, entry});
}

void NodeIndex::Erase(std::string_view name) {
  if (FindBucket(name, HashOf(name)) == nullptr) return;
  --size_;
  // Rehashes all entries, because linear probing may have placed entries behind the erased entry.
  const std::vector<HashBucket> old =
      std::exchange(buckets_, std::vector<HashBucket>(buckets_.size()));
  for (const HashBucket& bucket : old) {
    if (bucket.entry != nullptr && bucket.name != name) Put(bucket);
  }
}

const NodeIndex::HashBucket* NodeIndex::FindBucket(std::string_view name, uint64_t hash) const {
  for (size_t at = FirstBucketOf(hash); buckets_[at].entry != nullptr;
       at = (at + 1) & (buckets_.size() - 1)) {
    if (buckets_[at].hash == hash && buckets_[at].name == name) return &buckets_[at];
  }
  return nullptr;
}

const NodeEntry* NodeIndex::Find(std::string_view name) const {
  const HashBucket* bucket = FindBucket(name, HashOf(name));
  return bucket == nullptr ? nullptr : bucket->entry;
}

void NodeIndex::Find(std::span<const std::string_view> names,
                     std::span<const NodeEntry*> out) const {
  std::array<uint64_t, kBlock> hashes;
  for (size_t begin = 0; begin < names.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, names.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashOf(names[begin + i]);
      __builtin_prefetch(&buckets_[FirstBucketOf(hashes[i])]);
    }
    for (size_t i = 0; i < count; ++i) {
      const HashBucket& bucket = buckets_[FirstBucketOf(hashes[i])];
      __builtin_prefetch(bucket.name.data());
      __builtin_prefetch(bucket.entry);
    }
    for (size_t i = 0; i < count; ++i) {
      const HashBucket* bucket = FindBucket(names[begin + i], hashes[i]);
      out[begin + i] = bucket == nullptr ? nullptr : bucket->entry;
    }
  }
}

}  // namespace tessera::ledger
