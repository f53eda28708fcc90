// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/waste_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

constexpr int kDraws = 48;
constexpr int kEarlyDraws = 4;  // draws after which idle GPU has the weight early_weight
constexpr int kLanes = 16;
constexpr int kMaxMisses = 16;     // a node is full after so many draws that fit nowhere
constexpr int64_t kCpuUnit = 100;  // unit of CPU in roll-outs: up to 3,276 cores
constexpr int64_t kMemoryUnit = int64_t{512} << 20;  // up to 16 TiB
constexpr double kOffers = 40;                       // pods offered to one GPU in the closed form
constexpr double kMaxClosedFormWeight = 0.5;         // largest weight of the closed form
// How many terms of the closed form one call of Step computes: about 50 µs.
constexpr int kTermsPerStep = 8000;

// The 16 roll-outs run side by side, each in a lane of a vector.
typedef int16_t Lanes __attribute__((vector_size(2 * kLanes)));

struct Draw {
  Lanes milli, count, cpu, memory;
};

int16_t Units(int64_t amount, int64_t unit) {
  return static_cast<int16_t>(std::clamp<int64_t>((amount + unit / 2) / unit, 0, 32000));
}

// Expected fraction of a normally distributed demand that is not met by `available`:
// E[(N - available)+] / E[N].
double UnmetFraction(double mean, double variance, double available) {
  if (mean <= 0) return 0;
  const double sigma = std::sqrt(std::max(variance, 1e-6)), z = (available - mean) / sigma;
  const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI);
  const double unmet = sigma * (density - z * 0.5 * std::erfc(z * M_SQRT1_2));
  return std::clamp(unmet / mean, 0.0, 1.0);
}

inline bool Any(const Lanes& lanes) {
  typedef int64_t Words __attribute__((vector_size(2 * kLanes)));
  const Words words = reinterpret_cast<const Words&>(lanes);
  return (words[0] | words[1] | words[2] | words[3]) != 0;
}

// Compiles a function twice, for AVX2 and for any x86-64. The selection between the two runs before
// ThreadSanitizer starts, but would call ThreadSanitizer. On arm64 all vectors have 128 bits.
#if defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define TESSERA_AVX2_CLONE
#else
#define TESSERA_AVX2_CLONE __attribute__((target_clones("avx2", "default")))
#endif

// Returns the weighted idle thousandths that the roll-outs leave on a node of state `key`.
TESSERA_AVX2_CLONE double RollOut(const Draw* draws, const NodeKey& key, double early_weight) {
  constexpr int16_t kNone = 1001;
  Lanes free[NodeKey::kMaxGpus];
  const int gpus = key.gpus;
  for (int i = 0; i < gpus; ++i) free[i] = Lanes{} + key.slack[i];
  Lanes cpu = Lanes{} + Units(key.cpu_steps * NodeKey::kCpuStepMilli, kCpuUnit);
  Lanes memory = Lanes{} + Units(key.memory_steps * NodeKey::kMemoryStepBytes, kMemoryUnit);
  Lanes recently_placed{};  // lanes in which recent draws placed a pod
  const auto idle = [&] {   // at most 16 · 1000 in each lane
    Lanes lanes{};
    for (int i = 0; i < gpus; ++i) lanes += free[i];
    int sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
    return sum / double{kLanes};
  };
  double early = 0;
  for (int d = 0; d < kDraws; ++d) {
    if (d % kMaxMisses == 0) {
      if (d > 0 && !Any(recently_placed)) break;
      recently_placed = Lanes{};
    }
    if (d == kEarlyDraws) early = idle();
    const Draw* draw = draws + d;
    Lanes room{}, tightest = Lanes{} + kNone;
    for (int i = 0; i < gpus; ++i) {
      const Lanes fits = free[i] >= draw->milli;  // -1 where true
      room -= fits;
      const Lanes candidate = fits ? free[i] : Lanes{} + kNone;
      tightest = candidate < tightest ? candidate : tightest;
    }
    const Lanes placed = (room >= draw->count) & (cpu >= draw->cpu) & (memory >= draw->memory);
    recently_placed |= placed;
    // A pod of several GPUs takes whole GPUs, which are equally tight.
    Lanes left = draw->count & placed;
    for (int i = 0; i < gpus; ++i) {
      const Lanes take = (free[i] == tightest) & (left > 0);
      free[i] -= take & draw->milli;
      left += take;
    }
    cpu -= placed & draw->cpu;
    memory -= placed & draw->memory;
  }
  return early_weight * early + (1 - early_weight) * idle();
}

}  // namespace

// The mix as seen by one GPU model: the closed form by slack, and the streams of roll-outs.
struct WasteModel::Tables {
  struct SlackRow {
    double waste = 0, cpu = 0, cpu_square = 0, memory = 0, memory_square = 0;
  };
  // Pods of the mix that take `milli` of a GPU: their chance, and moments of their CPU and memory
  // per GPU.
  struct ShareSize {
    int milli = 0;
    double chance = 0, cpu = 0, cpu_square = 0, memory = 0, memory_square = 0;
  };

  std::array<SlackRow, 1001> rows;  // by slack of one GPU
  std::array<Draw, kDraws> draws;
  std::vector<MixPod> pods;      // that fit this model, with the thousandths they take
  std::vector<double> ends;      // upper ends of their intervals in [0, 1)
  std::vector<ShareSize> sizes;  // by `milli`, ascending
  int next_row = 0;
  double closed_weight = kMaxClosedFormWeight;
  std::mt19937 random{12345};  // any seed: FillDraw covers the mix evenly

  void Start(const std::vector<MixPod>& mix, ModelId model, int64_t device_memory);
  void FillRow(int slack);
  void FillDraw(Draw* draw);
  double ClosedForm(const NodeKey& key) const;
};

void WasteModel::Tables::Start(const std::vector<MixPod>& mix, ModelId model,
                               int64_t device_memory) {
  double total = 0, cpu = 0, cpu_with_gpus = 0;
  for (MixPod pod : mix) {
    if (pod.weight <= 0 || (pod.models.any() && !pod.models.test(model))) continue;
    if (pod.count > 0) {
      pod.milli = MilliOn(device_memory, pod.milli, pod.bytes);
      if (pod.milli > 1000) continue;
    }
    pods.push_back(pod);
    total += pod.weight;
    const double pod_cpu = pod.weight * static_cast<double>(pod.cpu_milli);
    cpu += pod_cpu;
    if (pod.count > 0) cpu_with_gpus += pod_cpu;
  }
  if (cpu > 0) closed_weight = std::min(kMaxClosedFormWeight, std::pow(cpu_with_gpus / cpu, 1.5));
  std::map<int, ShareSize> by_milli;
  double sum = 0;
  for (const MixPod& pod : pods) {
    const double p = pod.weight / total;
    ends.push_back(sum += p);
    if (pod.count == 0 || pod.milli == 0) continue;
    ShareSize& size = by_milli[pod.milli];
    size.milli = pod.milli;
    const double cpu = static_cast<double>(pod.cpu_milli) / pod.count;
    const double memory = static_cast<double>(pod.memory) / pod.count;
    size.chance += p;
    size.cpu += p * cpu;
    size.cpu_square += p * cpu * cpu;
    size.memory += p * memory;
    size.memory_square += p * memory * memory;
  }
  for (const auto& [milli, size] : by_milli) sizes.push_back(size);
}

// Evaluates the recursion in the header, and the first two moments of CPU and memory.
void WasteModel::Tables::FillRow(int slack) {
  double chance = 0;
  SlackRow sum;
  for (const ShareSize& size : sizes) {
    if (size.milli > slack) break;
    const SlackRow& rest = rows[slack - size.milli];
    const double p = size.chance;
    chance += p;
    sum.waste += p * rest.waste;
    sum.cpu += size.cpu + p * rest.cpu;
    sum.cpu_square += size.cpu_square + 2 * size.cpu * rest.cpu + p * rest.cpu_square;
    sum.memory += size.memory + p * rest.memory;
    sum.memory_square +=
        size.memory_square + 2 * size.memory * rest.memory + p * rest.memory_square;
  }
  SlackRow& row = rows[slack];
  if (chance <= 0) {
    row.waste = slack;
    return;
  }
  const double h = 1 - std::pow(1 - std::min(chance, 1.0), kOffers), k = h / chance;
  row = {.waste = (1 - h) * slack + k * sum.waste,
         .cpu = k * sum.cpu,
         .cpu_square = k * sum.cpu_square,
         .memory = k * sum.memory,
         .memory_square = k * sum.memory_square};
}

// Each of the 16 lanes takes a pod from another sixteenth of the mix. Together they represent the
// mix better than 16 independent draws.
void WasteModel::Tables::FillDraw(Draw* draw) {
  std::array<int, kLanes> order;
  for (int lane = 0; lane < kLanes; ++lane) {
    order[lane] = lane;
    std::swap(order[lane], order[random() % (lane + 1)]);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const double at = (order[lane] + random() / 4294967296.0) / kLanes;
    const size_t chosen = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
    const MixPod& pod = pods[std::min(chosen, pods.size() - 1)];
    draw->milli[lane] = static_cast<int16_t>(pod.milli);
    draw->count[lane] = static_cast<int16_t>(pod.count);
    draw->cpu[lane] = Units(pod.cpu_milli, kCpuUnit);
    draw->memory[lane] = Units(pod.memory, kMemoryUnit);
  }
}

double WasteModel::Tables::ClosedForm(const NodeKey& key) const {
  double idle = 0, waste = 0, cpu = 0, cpu_variance = 0, memory = 0, memory_variance = 0;
  for (int i = 0; i < key.gpus; ++i) {
    const SlackRow& row = rows[key.slack[i]];
    idle += key.slack[i];
    waste += row.waste;
    cpu += row.cpu;
    cpu_variance += row.cpu_square - row.cpu * row.cpu;
    memory += row.memory;
    memory_variance += row.memory_square - row.memory * row.memory;
  }
  const auto cpu_left = static_cast<double>(key.cpu_steps * NodeKey::kCpuStepMilli);
  const auto memory_left = static_cast<double>(key.memory_steps * NodeKey::kMemoryStepBytes);
  return waste + std::max(UnmetFraction(cpu, cpu_variance, cpu_left),
                          UnmetFraction(memory, memory_variance, memory_left)) *
                     (idle - waste);
}

// A cache of fixed size. A value that was evicted is computed again, with the same result.
struct WasteModel::Memo {
  struct Entry {
    NodeKey key;
    float waste = -1;  // negative: empty
  };
  std::vector<Entry> entries = std::vector<Entry>(1 << 16);
};

uint64_t NodeKey::Hash() const {
  static_assert(sizeof(NodeKey) == 40);
  uint64_t words[5], hash = 0;
  std::memcpy(words, this, sizeof *this);
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

void NodeKey::SetHost(int64_t cpu_milli, int64_t memory_bytes) {
  cpu_steps = static_cast<int16_t>(std::clamp<int64_t>(cpu_milli / kCpuStepMilli, 0, 6000));
  memory_steps =
      static_cast<int16_t>(std::clamp<int64_t>(memory_bytes / kMemoryStepBytes, 0, 8000));
}

NodeKey NodeKey::Of(ModelId model, int64_t cpu_milli, int64_t memory, const int16_t* slack,
                    size_t count) {
  std::array<int16_t, kMaxGpusPerNode> sorted;
  std::partial_sort_copy(slack, slack + count, sorted.begin(), sorted.begin() + count);
  const size_t kept = std::min(count, kMaxGpus);
  NodeKey key{.model = model, .gpus = static_cast<int16_t>(kept)};
  key.SetHost(cpu_milli, memory);
  std::copy_n(sorted.begin() + (count - kept), kept, key.slack.begin());
  return key;
}

WasteModel::WasteModel(std::vector<MixPod> mix, std::vector<int64_t> device_memory,
                       double early_weight, PolicyParts excluded_parts)
    : mix_(std::move(mix)),
      device_memory_(std::move(device_memory)),
      tables_(device_memory_.size()),
      early_weight_(early_weight),
      excluded_parts_(excluded_parts),
      memo_(std::make_unique<Memo>()) {}
WasteModel::~WasteModel() = default;

bool WasteModel::Step() {
  if (built_models_ == tables_.size()) return false;
  std::unique_ptr<Tables>& tables = tables_[built_models_];
  if (!tables) {
    tables = std::make_unique<Tables>();
    tables->Start(mix_, static_cast<ModelId>(built_models_), device_memory_[built_models_]);
  }
  for (int terms = 0; tables->next_row <= 1000 && terms < kTermsPerStep;) {
    tables->FillRow(tables->next_row++);
    terms += static_cast<int>(tables->sizes.size()) + 4;
  }
  if (tables->next_row <= 1000) return true;
  if (!tables->pods.empty()) {
    for (Draw& draw : tables->draws) tables->FillDraw(&draw);
  }
  return ++built_models_ < tables_.size();
}

// A GPU model that appeared after the mix was learned counts as a model that no pod of the mix
// names.
const WasteModel::Tables& WasteModel::TablesOf(ModelId model) const {
  return *tables_[model < tables_.size() ? model : kNoModel];
}

float WasteModel::Waste(const NodeKey& key) {
  Memo::Entry& known = memo_->entries[key.Hash() % memo_->entries.size()];
  if (known.waste >= 0 && known.key == key && !excluded_parts_.test(kMemo)) return known.waste;
  const Tables& tables = TablesOf(key.model);
  double waste = std::accumulate(key.slack.begin(), key.slack.end(), 0.0);
  if (!tables.pods.empty() && waste > 0) {
    const double closed = excluded_parts_.test(kClosedForm) ? 0 : tables.ClosedForm(key);
    const double rolled =
        excluded_parts_.test(kRollOuts) ? closed : RollOut(tables.draws.data(), key, early_weight_);
    const double weight = excluded_parts_.test(kClosedForm) ? 0 : tables.closed_weight;
    waste = weight * closed + (1 - weight) * rolled;
  }
  known = {key, static_cast<float>(waste)};
  return known.waste;
}

}  // namespace tessera::placement
