// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/waste_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

namespace tessera::placement {
namespace {

constexpr int kDraws = 48;
constexpr int kLanes = 16;
constexpr int kPatience = 16;      // draws that may fit nowhere before a node counts as full
constexpr int64_t kCpuUnit = 100;  // of roll-outs: up to 3,276 cores
constexpr int64_t kMemoryUnit = int64_t{512} << 20;  // up to 16 TiB
constexpr double kOffers = 40;                       // pods offered to one GPU in the closed form
// Terms of the closed form computed in one step of preparation: some 50 µs.
constexpr int kTermsPerStep = 8000;

// 16 roll-outs side by side.
typedef int16_t Lanes __attribute__((vector_size(2 * kLanes)));

struct Draw {
  Lanes milli, count, cpu, memory;
};

int16_t Units(int64_t amount, int64_t unit) {
  return static_cast<int16_t>(std::clamp<int64_t>((amount + unit / 2) / unit, 0, 32000));
}

// E[(Z - z)+] for a standard normal Z: what a demand of mean 0 lacks where z is there. From a
// table.
class NormalLoss {
 public:
  NormalLoss() {
    for (int i = 0; i <= kSize; ++i) {
      const double z = (i - kSize / 2) / static_cast<double>(kPerUnit);
      values_[i] = static_cast<float>(std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI) -
                                      z * 0.5 * std::erfc(z / std::sqrt(2.0)));
    }
  }
  float At(float z) const {
    const float at = (z + kRange) * kPerUnit;
    if (at <= 0) return -z;
    if (at >= kSize) return 0;
    const int row = static_cast<int>(at);
    return values_[row] + (at - static_cast<float>(row)) * (values_[row + 1] - values_[row]);
  }

 private:
  static constexpr int kRange = 5, kPerUnit = 64, kSize = 2 * kRange * kPerUnit;
  std::array<float, kSize + 2> values_{};
};
const NormalLoss kNormalLoss;

// Which part of a demand of this mean and variance will not be met where `there` is.
float MissingPart(float mean, float variance, float there) {
  if (mean <= 0) return 0;
  const float spread = std::sqrt(std::max(variance, 1e-6f));
  return std::min(spread * kNormalLoss.At((there - mean) / spread) / mean, 1.0f);
}

inline bool Any(const Lanes& lanes) {
  typedef int64_t Words __attribute__((vector_size(2 * kLanes)));
  const Words words = reinterpret_cast<const Words&>(lanes);
  return (words[0] | words[1] | words[2] | words[3]) != 0;
}

// What chooses between clones runs before ThreadSanitizer does, and would call it.
#if defined(__SANITIZE_THREAD__)
#define TESSERA_WIDE_AND_NARROW
#else
#define TESSERA_WIDE_AND_NARROW __attribute__((target_clones("avx2", "default")))
#endif

TESSERA_WIDE_AND_NARROW int Pack(const Draw* draws, const NodeKey& key) {
  constexpr int16_t kNone = 1001;
  Lanes free[NodeKey::kMaxGpus];
  const int gpus = key.gpus;
  for (int i = 0; i < gpus; ++i) free[i] = Lanes{} + key.slack[i];
  Lanes cpu = Lanes{} + Units(key.cpu_steps * NodeKey::kCpuStep, kCpuUnit);
  Lanes memory = Lanes{} + Units(key.memory_steps * NodeKey::kMemoryStep, kMemoryUnit);
  Lanes lately{};  // where something was placed by the last draws
  for (int d = 0; d < kDraws; ++d) {
    if (d % kPatience == 0) {
      if (d > 0 && !Any(lately)) break;
      lately = Lanes{};
    }
    const Draw* draw = draws + d;
    Lanes room{}, tightest = Lanes{} + kNone;
    for (int i = 0; i < gpus; ++i) {
      const Lanes fits = free[i] >= draw->milli;  // -1 where true
      room -= fits;
      const Lanes candidate = fits ? free[i] : Lanes{} + kNone;
      tightest = candidate < tightest ? candidate : tightest;
    }
    const Lanes placed = (room >= draw->count) & (cpu >= draw->cpu) & (memory >= draw->memory);
    lately |= placed;
    // Several GPUs of one pod are whole, so all of them are as tight as the tightest.
    Lanes left = draw->count & placed;
    for (int i = 0; i < gpus; ++i) {
      const Lanes take = (free[i] == tightest) & (left > 0);
      free[i] -= take & draw->milli;
      left += take;
    }
    cpu -= placed & draw->cpu;
    memory -= placed & draw->memory;
  }
  Lanes idle{};
  for (int i = 0; i < gpus; ++i) idle += free[i];  // at most 16 · 1000
  int sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += idle[lane];
  return sum;
}

}  // namespace

struct WasteModel::Tables {
  struct Row {
    float waste = 0, cpu = 0, cpu_variance = 0, memory = 0, memory_variance = 0;
  };
  // Pods of the mix that take `milli` of a GPU: chance, and moments of CPU and memory per GPU.
  struct Size {
    int milli = 0;
    double chance = 0, cpu = 0, cpu_square = 0, memory = 0, memory_square = 0;
  };

  std::array<Row, 1001> rows;  // closed form, by slack of one GPU
  std::array<Draw, kDraws> draws;
  std::vector<const MixPod*> pods;
  std::vector<double> ends;  // of their parts of [0, 1)
  std::vector<Size> sizes;   // ascending
  int next_row = 0;
  std::mt19937 random{12345};  // any: see FillDraw

  void Start(const std::vector<MixPod>& mix, ModelId model);
  void FillRow(int slack);
  void FillDraw(Draw* draw);
};

void WasteModel::Tables::Start(const std::vector<MixPod>& mix, ModelId model) {
  double total = 0;
  for (const MixPod& pod : mix) {
    if (pod.weight <= 0 || (pod.models.any() && !pod.models.test(model))) continue;
    pods.push_back(&pod);
    total += pod.weight;
  }
  std::map<int, Size> by_milli;
  double sum = 0;
  for (const MixPod* pod : pods) {
    const double p = pod->weight / total;
    ends.push_back(sum += p);
    if (pod->count == 0 || pod->milli == 0) continue;
    Size& size = by_milli[pod->milli];
    size.milli = pod->milli;
    const double cpu = static_cast<double>(pod->cpu_milli) / 1000 / pod->count;
    const double memory = static_cast<double>(pod->memory >> 20) / 1024 / pod->count;
    size.chance += p;
    size.cpu += p * cpu;
    size.cpu_square += p * cpu * cpu;
    size.memory += p * memory;
    size.memory_square += p * memory * memory;
  }
  for (const auto& [milli, size] : by_milli) sizes.push_back(size);
}

// w(r) = (1-h)·r + h·Σ p·w(r-g)/P, where P is the chance that a pod fits into r, and h that one of
// kOffers does; the same for what these pods ask of the host.
void WasteModel::Tables::FillRow(int slack) {
  double chance = 0, waste = 0, cpu = 0, cpu_square = 0, memory = 0, memory_square = 0;
  for (const Size& size : sizes) {
    if (size.milli > slack) break;
    const Row& rest = rows[slack - size.milli];
    const double p = size.chance;
    chance += p;
    waste += p * rest.waste;
    cpu += size.cpu + p * rest.cpu;
    cpu_square +=
        size.cpu_square + 2 * size.cpu * rest.cpu + p * (rest.cpu * rest.cpu + rest.cpu_variance);
    memory += size.memory + p * rest.memory;
    memory_square += size.memory_square + 2 * size.memory * rest.memory +
                     p * (rest.memory * rest.memory + rest.memory_variance);
  }
  Row& row = rows[slack];
  if (chance <= 0) {
    row.waste = static_cast<float>(slack);
    return;
  }
  const double h = 1 - std::pow(1 - std::min(chance, 1.0), kOffers), k = h / chance;
  row.waste = static_cast<float>((1 - h) * slack + k * waste);
  row.cpu = static_cast<float>(k * cpu);
  row.cpu_variance = static_cast<float>(k * cpu_square - k * k * cpu * cpu);
  row.memory = static_cast<float>(k * memory);
  row.memory_variance = static_cast<float>(k * memory_square - k * k * memory * memory);
}

// The 16 lanes take one pod from each sixteenth of the mix, so that together they differ less from
// the mix than 16 independent draws would.
void WasteModel::Tables::FillDraw(Draw* draw) {
  std::array<int, kLanes> order;
  for (int lane = 0; lane < kLanes; ++lane) {
    order[lane] = lane;
    std::swap(order[lane], order[random() % (lane + 1)]);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const double at = (order[lane] + random() / 4294967296.0) / kLanes;
    const size_t chosen = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
    const MixPod& pod = *pods[std::min(chosen, pods.size() - 1)];
    draw->milli[lane] = static_cast<int16_t>(pod.milli);
    draw->count[lane] = static_cast<int16_t>(pod.count);
    draw->cpu[lane] = Units(pod.cpu_milli, kCpuUnit);
    draw->memory[lane] = Units(pod.memory, kMemoryUnit);
  }
}

// A cache of fixed size: what is thrown out is computed again, to the same value.
struct WasteModel::Memo {
  struct Entry {
    NodeKey key;
    float waste;
    bool used = false;
  };
  std::vector<Entry> entries = std::vector<Entry>(1 << 14);
};

NodeKey NodeKey::With(int16_t from, int16_t to, int64_t cpu_milli, int64_t memory_bytes) const {
  NodeKey key = *this;
  key.SetHost(cpu_milli, memory_bytes);
  int at = 0;
  while (at + 1 < gpus && key.slack[at] != from) ++at;
  for (; at > 0 && key.slack[at - 1] > to; --at) key.slack[at] = key.slack[at - 1];
  if (gpus > 0) key.slack[at] = to;
  return key;
}

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
  cpu_steps = static_cast<int16_t>(std::clamp<int64_t>(cpu_milli / kCpuStep, 0, 6000));
  memory_steps = static_cast<int16_t>(std::clamp<int64_t>(memory_bytes / kMemoryStep, 0, 8000));
}

NodeKey NodeKey::Of(ModelId model, int64_t cpu_milli, int64_t memory, const int16_t* slack,
                    size_t count) {
  std::array<int16_t, kMaxGpusPerNode> sorted;
  for (size_t i = 0; i < count; ++i) {
    size_t at = i;
    for (; at > 0 && sorted[at - 1] > slack[i]; --at) sorted[at] = sorted[at - 1];
    sorted[at] = slack[i];
  }
  const size_t kept = std::min(count, kMaxGpus);
  NodeKey key{.model = model, .gpus = static_cast<int16_t>(kept)};
  key.SetHost(cpu_milli, memory);
  std::copy_n(sorted.begin() + (count - kept), kept, key.slack.begin());
  return key;
}

WasteModel::WasteModel(std::vector<MixPod> mix, size_t models)
    : mix_(std::move(mix)), tables_(models), memo_(std::make_unique<Memo>()) {}
WasteModel::~WasteModel() = default;

bool WasteModel::Step() {
  if (built_ == tables_.size()) return false;
  std::unique_ptr<Tables>& tables = tables_[built_];
  if (!tables) {
    tables = std::make_unique<Tables>();
    tables->Start(mix_, static_cast<ModelId>(built_));
  }
  for (int terms = 0; tables->next_row <= 1000 && terms < kTermsPerStep;) {
    tables->FillRow(tables->next_row++);
    terms += static_cast<int>(tables->sizes.size()) + 4;
  }
  if (tables->next_row <= 1000) return true;
  if (!tables->pods.empty()) {
    for (Draw& draw : tables->draws) tables->FillDraw(&draw);
  }
  return ++built_ < tables_.size();
}

// A model that came after the mix was learnt is treated as one that only untyped pods use.
const WasteModel::Tables& WasteModel::TablesOf(ModelId model) const {
  return *tables_[model < tables_.size() ? model : kNoModel];
}

void WasteModel::Add(ModelId model, int slack, float sign, WasteSums* sums) const {
  const Tables::Row& row = TablesOf(model).rows[std::clamp(slack, 0, 1000)];
  sums->idle += sign * static_cast<float>(slack);
  sums->waste += sign * row.waste;
  sums->cpu += sign * row.cpu;
  sums->cpu_variance += sign * row.cpu_variance;
  sums->memory += sign * row.memory;
  sums->memory_variance += sign * row.memory_variance;
}

float WasteModel::ClosedForm(const WasteSums& sums, int64_t cpu_milli, int64_t memory) const {
  const float cores = static_cast<float>(cpu_milli) * 1e-3f;
  const float gib = static_cast<float>(memory >> 20) * (1.0f / 1024);
  const float missing = std::max(MissingPart(sums.cpu, sums.cpu_variance, cores),
                                 MissingPart(sums.memory, sums.memory_variance, gib));
  return sums.waste + missing * (sums.idle - sums.waste);
}

float WasteModel::RollOuts(const NodeKey& key) {
  Memo::Entry& known = memo_->entries[key.Hash() % memo_->entries.size()];
  if (known.used && known.key == key) return known.waste;
  const Tables& tables = TablesOf(key.model);
  float waste = 0;
  if (tables.pods.empty()) {
    for (int i = 0; i < key.gpus; ++i) waste += key.slack[i];
  } else {
    waste = static_cast<float>(Pack(tables.draws.data(), key)) / kLanes;
  }
  known = {key, waste, true};
  return waste;
}

}  // namespace tessera::placement
