// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/stream/kernels.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace tessera::cuda {
namespace {

// Reads parameters and checks memory for one launch.
class Arguments {
 public:
  Arguments(const KernelLaunch& launch, RangeChecker check, void* check_argument)
      : launch_(launch), check_(check), check_argument_(check_argument) {}

  template <typename T>
  T Get(size_t index) const {
    T value{};
    std::memcpy(&value, launch_.parameters + launch_.entry->parameters[index].offset,
                sizeof(value));
    return value;
  }

  uint64_t Count(size_t index) const {
    const int n = Get<int>(index);
    return n <= 0 ? 0 : std::min<uint64_t>(uint64_t(n), launch_.threads);
  }

  // Null: not all of the `count` floats are in memory of the program.
  float* Floats(size_t index, uint64_t count) const {
    const auto pointer = Get<DevicePtr>(index);
    const bool ok =
        pointer % sizeof(float) == 0 && check_(check_argument_, pointer, count * sizeof(float));
    return ok ? reinterpret_cast<float*>(pointer) : nullptr;
  }

 private:
  const KernelLaunch& launch_;
  const RangeChecker check_;
  void* const check_argument_;
};

// (const float* a, const float* b, float* c, int n): c = a + b
LaunchEffect VectorAdd(const Arguments& arguments) {
  const uint64_t n = arguments.Count(3);
  const float* a = arguments.Floats(0, n);
  const float* b = arguments.Floats(1, n);
  float* c = arguments.Floats(2, n);
  if (n != 0 && (a == nullptr || b == nullptr || c == nullptr)) return {Result::kIllegalAddress};
  const auto compute = [=] {
    for (uint64_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
  };
  return {.bytes = n * 3 * sizeof(float), .compute = compute};
}

// (int n, float a, const float* x, float* y): y = a * x + y
LaunchEffect Saxpy(const Arguments& arguments) {
  const uint64_t n = arguments.Count(0);
  const auto a = arguments.Get<float>(1);
  const float* x = arguments.Floats(2, n);
  float* y = arguments.Floats(3, n);
  if (n != 0 && (x == nullptr || y == nullptr)) return {Result::kIllegalAddress};
  const auto compute = [=] {
    for (uint64_t i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
  };
  return {.bytes = n * 3 * sizeof(float), .compute = compute};
}

// (float* out, float value, int n): out = value
LaunchEffect Fill(const Arguments& arguments) {
  const uint64_t n = arguments.Count(2);
  float* out = arguments.Floats(0, n);
  if (n != 0 && out == nullptr) return {Result::kIllegalAddress};
  const auto value = arguments.Get<float>(1);
  return {.bytes = n * sizeof(float), .compute = [=] { std::fill_n(out, n, value); }};
}

bool SameSizes(const Entry& entry, const std::initializer_list<uint32_t>& sizes) {
  return entry.parameters_known &&
         std::equal(
             entry.parameters.begin(), entry.parameters.end(), sizes.begin(), sizes.end(),
             [](const Parameter& parameter, uint32_t size) { return parameter.size == size; });
}

}  // namespace

struct KnownKernel {
  std::string_view name;
  std::initializer_list<uint32_t> sizes;
  LaunchEffect (*effect)(const Arguments& arguments);
};

namespace {

const KnownKernel kKnownKernels[] = {
    {"vectorAdd", {8, 8, 8, 4}, VectorAdd},
    {"vecAdd", {8, 8, 8, 4}, VectorAdd},
    {"vector_add", {8, 8, 8, 4}, VectorAdd},
    {"saxpy", {4, 4, 8, 8}, Saxpy},
    {"fill", {8, 4, 4}, Fill},
};

}  // namespace

const KnownKernel* FindKnownKernel(const Entry& entry) {
  const std::string_view name = BareName(entry.name);
  for (const KnownKernel& known : kKnownKernels) {
    if (known.name == name && SameSizes(entry, known.sizes)) return &known;
  }
  return nullptr;
}

LaunchEffect EffectOf(const KnownKernel& kernel, const KernelLaunch& launch, RangeChecker check,
                      void* check_argument) {
  return kernel.effect(Arguments(launch, check, check_argument));
}

}  // namespace tessera::cuda
