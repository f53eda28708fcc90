// SPDX-License-Identifier: Apache-2.0
// Private to the dialects: what each of them is made of. A dialect says which resources are its own
// and what their numbers mean; dialects.cc reads the numbers and keeps dialects apart.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/status.h"
#include "src/device/dialects.h"
#include "src/device/request.h"

namespace tessera::device::dialects {

// The resources of one dialect that one container asks for, by name; none is negative.
using Amounts = std::map<std::string, int64_t, std::less<>>;

struct Parser {
  Dialect dialect;
  bool (*owns)(std::string_view resource);
  // Behind "is not a whole number": what to ask for instead.
  std::string_view whole_hint;
  // Fills count and shares of `request`, whose name, phase and dialect stand already. Some amount
  // is not 0.
  Status (*parse)(const Amounts& amounts, const DialectOptions& options, ContainerRequest* request);
};

extern const Parser kNvidiaGpu;
extern const Parser kNvidiaMig;
extern const Parser kGpuMem;
extern const Parser kVcuda;

// `container "main": tencent.com/vcuda-core: 150 is …`
template <typename... Args>
Status Refuse(std::string_view container, std::string_view resource,
              fmt::format_string<Args...> format, Args&&... args) {
  return Error(Code::kInvalidArgument, "container \"{}\": {}: {}", container, resource,
               fmt::format(format, std::forward<Args>(args)...));
}

// `amount` × `unit` as the memory of a share; refused above kMaxShareMemory.
Result<Bytes> ShareMemory(std::string_view container, std::string_view resource, int64_t amount,
                          Bytes unit);

// Whole devices: the count within its bound, the share that of a whole one.
Status SetWhole(std::string_view resource, int64_t count, ContainerRequest* request);

}  // namespace tessera::device::dialects
