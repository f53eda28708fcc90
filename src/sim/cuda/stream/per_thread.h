// SPDX-License-Identifier: Apache-2.0
// Per-thread default streams: stream handle 2, and handle 0 in functions with the suffix _ptsz or
// _ptds. A thread has such a stream for each context in which it uses one of these handles. The
// stream is a blocking stream: it and the legacy stream wait for each other. It is destroyed when
// its thread ends; its commands still run.
#pragma once

#include <cstddef>
#include <tuple>

namespace tessera::cuda {

// While an object of this class exists in a thread, stream handle 0 is the thread's own stream.
class PerThreadDefaultScope {
 public:
  PerThreadDefaultScope() : outer_(active_) { active_ = true; }
  ~PerThreadDefaultScope() { active_ = outer_; }
  PerThreadDefaultScope(const PerThreadDefaultScope&) = delete;
  PerThreadDefaultScope& operator=(const PerThreadDefaultScope&) = delete;

  static bool IsActive() { return active_; }

 private:
  static inline thread_local bool active_ = false;
  const bool outer_;
};

template <typename Function>
struct Signature;
template <typename Returned, typename... Parameters>
struct Signature<Returned(Parameters...)> {
  template <size_t I>
  using Parameter = std::tuple_element_t<I, std::tuple<Parameters...>>;
};
template <typename Function, size_t I>
using ParameterOf = typename Signature<Function>::template Parameter<I>;

}  // namespace tessera::cuda

// Exports a function with `count` parameters under a second name, for which stream handle 0 is the
// thread's own stream.
#define CUDA_PER_THREAD(other, name, count)                                                       \
  extern "C" __attribute__((visibility("default"))) Result other(CUDA_PARAMETERS_##count(name)) { \
    const ::tessera::cuda::PerThreadDefaultScope per_thread;                                      \
    return name(CUDA_ARGUMENTS_##count);                                                          \
  }

#define CUDA_PARAMETER(name, i) ::tessera::cuda::ParameterOf<decltype(name), i> a##i
#define CUDA_PARAMETERS_1(name) CUDA_PARAMETER(name, 0)
#define CUDA_PARAMETERS_2(name) CUDA_PARAMETERS_1(name), CUDA_PARAMETER(name, 1)
#define CUDA_PARAMETERS_3(name) CUDA_PARAMETERS_2(name), CUDA_PARAMETER(name, 2)
#define CUDA_PARAMETERS_4(name) CUDA_PARAMETERS_3(name), CUDA_PARAMETER(name, 3)
#define CUDA_PARAMETERS_5(name) CUDA_PARAMETERS_4(name), CUDA_PARAMETER(name, 4)
#define CUDA_PARAMETERS_6(name) CUDA_PARAMETERS_5(name), CUDA_PARAMETER(name, 5)
#define CUDA_PARAMETERS_7(name) CUDA_PARAMETERS_6(name), CUDA_PARAMETER(name, 6)
#define CUDA_PARAMETERS_8(name) CUDA_PARAMETERS_7(name), CUDA_PARAMETER(name, 7)
#define CUDA_PARAMETERS_9(name) CUDA_PARAMETERS_8(name), CUDA_PARAMETER(name, 8)
#define CUDA_PARAMETERS_10(name) CUDA_PARAMETERS_9(name), CUDA_PARAMETER(name, 9)
#define CUDA_PARAMETERS_11(name) CUDA_PARAMETERS_10(name), CUDA_PARAMETER(name, 10)
#define CUDA_ARGUMENTS_1 a0
#define CUDA_ARGUMENTS_2 CUDA_ARGUMENTS_1, a1
#define CUDA_ARGUMENTS_3 CUDA_ARGUMENTS_2, a2
#define CUDA_ARGUMENTS_4 CUDA_ARGUMENTS_3, a3
#define CUDA_ARGUMENTS_5 CUDA_ARGUMENTS_4, a4
#define CUDA_ARGUMENTS_6 CUDA_ARGUMENTS_5, a5
#define CUDA_ARGUMENTS_7 CUDA_ARGUMENTS_6, a6
#define CUDA_ARGUMENTS_8 CUDA_ARGUMENTS_7, a7
#define CUDA_ARGUMENTS_9 CUDA_ARGUMENTS_8, a8
#define CUDA_ARGUMENTS_10 CUDA_ARGUMENTS_9, a9
#define CUDA_ARGUMENTS_11 CUDA_ARGUMENTS_10, a10
