// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/compute/prices.h"

namespace tessera::limiter {
namespace {

constexpr uint32_t kMeanSamples = 8;        // samples in the mean of a price
constexpr uint32_t kNoisyMeanSamples = 32;  // replaces kMeanSamples if samples differ much
// FindSimilar looks at this many classes of sizes on each side: sixteen powers of two, with four
// classes in each.
constexpr uint64_t kMaxClassDistance = 64;

int64_t Distance(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

}  // namespace

void Prices::Reset(Price* entry, uint64_t key) {
  entry->price.store(kUnpriced, std::memory_order_relaxed);
  entry->deviation = entry->smallest_dropped = entry->shortest = entry->least = 0;
  entry->near = entry->samples = entry->dropped = entry->outstanding = 0;
  entry->is_long = false;
  ++entry->version;
  // The key is stored last, so that a reader that finds the new key does not take the price of the
  // previous key. A reader that found the previous key just before may use the price of the new key
  // for one launch.
  entry->key.store(key, std::memory_order_release);
}

Price* Prices::Add(uint64_t key) {
  if (Price* entry = Find(key)) return entry;
  // An entry with a launch that is being timed stays, because the entry corrects the charge of that
  // launch.
  const auto keep_rank = [](const Price& entry) {
    return entry.outstanding != 0 ? UINT32_MAX : entry.samples;
  };
  const uint32_t home = Home(key);
  Price* chosen = nullptr;
  for (uint32_t i = 0; i < kNear; ++i) {
    Price* entry = &entries_[(home + i) % kCapacity];
    if (entry->key.load(std::memory_order_relaxed) == 0) {
      chosen = entry;
      break;
    }
    if (chosen == nullptr || keep_rank(*entry) < keep_rank(*chosen)) chosen = entry;
  }
  Reset(chosen, key);
  return chosen;
}

// Between two sizes the price is interpolated. Above the largest it grows with the size, and below
// the smallest it is constant. An estimate that is too low harms more than one that is too high:
// estimates are charged at once, so the container exceeds its limit until a launch is measured.
Prices::Similar Prices::FindSimilar(const Work& work) {
  struct NearestPrice {
    uint64_t size_class;
    int64_t price = kUnpriced;
  };
  const uint64_t own = SizeClass(work.size);
  NearestPrice below{own}, above{own};
  bool outstanding = false;
  const auto find = [&](NearestPrice* nearest) {
    const Price* entry = Find(ClassKey(work.what, nearest->size_class));
    if (entry == nullptr) return;
    if (entry->samples != 0) nearest->price = entry->price.load(std::memory_order_relaxed);
    outstanding |= entry->outstanding != 0;
  };
  for (uint64_t i = 0; i < kMaxClassDistance && i < own && below.price == kUnpriced; ++i) {
    --below.size_class;
    find(&below);
  }
  for (uint64_t i = 0; i < kMaxClassDistance && above.price == kUnpriced; ++i) {
    ++above.size_class;
    find(&above);
  }
  if (below.price == kUnpriced) return {above.price, outstanding && above.price == kUnpriced};
  const auto size = [](uint64_t size_class) {
    return size_class == 0 ? 1 : double(LeastSize(size_class));
  };
  const double below_size = size(below.size_class), price = double(below.price);
  if (above.price == kUnpriced) return {int64_t(price * size(own) / below_size), false};
  const double part = (size(own) - below_size) / (size(above.size_class) - below_size);
  return {int64_t(price + (double(above.price) - price) * part), false};
}

// An entry without samples may stay in the table, because Add replaces entries with the fewest
// samples first.
void Prices::ForgetPrice(Price* entry) {
  const uint32_t outstanding = entry->outstanding;
  Reset(entry, entry->key.load(std::memory_order_relaxed));
  entry->outstanding = outstanding;
}

void Prices::Forget(const Work& work) {
  if (Price* entry = Find(PriceKey(work))) ForgetPrice(entry);
}

void Prices::ForgetAll() {
  for (Price& entry : entries_) {
    if (entry.key.load(std::memory_order_relaxed) != 0) ForgetPrice(&entry);
  }
}

void Prices::Clear() {
  for (Price& entry : entries_) {
    if (entry.key.load(std::memory_order_relaxed) != 0) Reset(&entry, 0);
  }
}

void Prices::Learn(Price* entry, int64_t sample_ns) {
  const int64_t price = entry->price.load(std::memory_order_relaxed);
  if (price == kUnpriced) {
    entry->samples = 1;
    entry->price.store(sample_ns, std::memory_order_relaxed);
    return;
  }
  const uint32_t mean_samples = entry->deviation > price * 3 / 5 ? kNoisyMeanSamples : kMeanSamples;
  if (entry->samples < UINT32_MAX) ++entry->samples;
  const int64_t weight = entry->samples < mean_samples ? entry->samples : mean_samples;
  const int64_t next = price + (sample_ns - price) / weight;
  entry->deviation += (Distance(sample_ns, price) - entry->deviation) / 16;
  entry->price.store(next > 0 ? next : 1, std::memory_order_relaxed);
}

}  // namespace tessera::limiter
