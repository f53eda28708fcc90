// SPDX-License-Identifier: Apache-2.0
// Launch functions of CUDA before 4.0: a function stores its block shape, shared memory and
// parameters, and a launch only has the grid.
#include <string.h>

#include "src/sim/cuda/stream/launch.h"

namespace tessera::cuda {
namespace {

// Applies `change` to the launch state of the function.
template <typename Change>
Result UpdateLegacyLaunch(Function function, Change change) {
  CUDA_ENTER(FunctionCall, call, function);
  return change(&call.function->legacy_launch);
}

Result SetStoredParameter(Function function, int offset, const void* value, size_t bytes) {
  if (value == nullptr || offset < 0 || size_t(offset) + bytes > kMaxParameterBytes) {
    return Result::kInvalidValue;
  }
  return UpdateLegacyLaunch(function, [=](LegacyLaunchState* state) {
    if (state->parameters.size() < size_t(offset) + bytes)
      state->parameters.resize(size_t(offset) + bytes);
    memcpy(state->parameters.data() + offset, value, bytes);
    return Result::kSuccess;
  });
}

Result LaunchStored(Function function, int width, int height, Stream stream) {
  if (width <= 0 || height <= 0) return Result::kInvalidValue;
  LegacyLaunchState launch;
  const Result result = UpdateLegacyLaunch(function, [&](LegacyLaunchState* state) {
    launch = *state;
    return Result::kSuccess;
  });
  if (result != Result::kSuccess) return result;
  size_t size = launch.parameters.size();
  void* extra[] = {reinterpret_cast<void*>(kLaunchParamBuffer), launch.parameters.data(),
                   reinterpret_cast<void*>(kLaunchParamSize), &size, kLaunchParamEnd};
  return cuLaunchKernel(function, unsigned(width), unsigned(height), 1, launch.block[0],
                        launch.block[1], launch.block[2], launch.shared_bytes, stream, nullptr,
                        size == 0 ? nullptr : extra);
}

}  // namespace

CUDA_EXPORT Result cuFuncSetBlockShape(Function function, int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return Result::kInvalidValue;
  return UpdateLegacyLaunch(function, [=](LegacyLaunchState* state) {
    const unsigned block[] = {unsigned(x), unsigned(y), unsigned(z)};
    memcpy(state->block, block, sizeof(block));
    return Result::kSuccess;
  });
}

CUDA_EXPORT Result cuFuncSetSharedSize(Function function, unsigned bytes) {
  return UpdateLegacyLaunch(function, [=](LegacyLaunchState* state) {
    state->shared_bytes = bytes;
    return Result::kSuccess;
  });
}

CUDA_EXPORT Result cuParamSetSize(Function function, unsigned bytes) {
  if (bytes > kMaxParameterBytes) return Result::kInvalidValue;
  return UpdateLegacyLaunch(function, [=](LegacyLaunchState* state) {
    state->parameters.resize(bytes);
    return Result::kSuccess;
  });
}

CUDA_EXPORT Result cuParamSeti(Function function, int offset, unsigned value) {
  return SetStoredParameter(function, offset, &value, sizeof(value));
}
CUDA_EXPORT Result cuParamSetf(Function function, int offset, float value) {
  return SetStoredParameter(function, offset, &value, sizeof(value));
}
CUDA_EXPORT Result cuParamSetv(Function function, int offset, void* value, unsigned bytes) {
  return SetStoredParameter(function, offset, value, bytes);
}

CUDA_EXPORT Result cuLaunch(Function function) { return LaunchStored(function, 1, 1, nullptr); }
CUDA_EXPORT Result cuLaunchGrid(Function function, int width, int height) {
  return LaunchStored(function, width, height, nullptr);
}
CUDA_EXPORT Result cuLaunchGridAsync(Function function, int width, int height, Stream stream) {
  return LaunchStored(function, width, height, stream);
}

}  // namespace tessera::cuda
