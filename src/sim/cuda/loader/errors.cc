// SPDX-License-Identifier: Apache-2.0
// Names and texts of the results that the node's driver knows.
#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

struct ErrorText {
  int code;
  const char* name;
  unsigned since;
  const char* text;
};

constexpr ErrorText kErrors[] = {
#define CUDA_ERROR(code, name, since, text) {code, #name, since, text},
#include "api/cuda_errors.inc"
#undef CUDA_ERROR
};

Result Find(Result error, const char* ErrorText::*member, const char** text) {
  if (text == nullptr) return Result::kInvalidValue;
  *text = nullptr;
  for (const ErrorText& entry : kErrors) {
    if (entry.code != static_cast<int>(error)) continue;
    if (entry.since > Driver::Get().CudaVersion()) return Result::kInvalidValue;
    *text = entry.*member;
    return Result::kSuccess;
  }
  return Result::kInvalidValue;
}

}  // namespace

CUDA_EXPORT Result cuGetErrorName(Result error, const char** text) {
  return Find(error, &ErrorText::name, text);
}
CUDA_EXPORT Result cuGetErrorString(Result error, const char** text) {
  return Find(error, &ErrorText::text, text);
}

}  // namespace tessera::cuda
