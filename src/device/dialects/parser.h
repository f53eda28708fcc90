// SPDX-License-Identifier: Apache-2.0
// Included only in src/device/dialects. A dialect interprets the amounts of its resources
// (DialectOfResource in request.h); dialects.cc parses the amounts and rejects mixed dialects.
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

// Non-negative amounts of one dialect's resources that a container requests, by resource name.
using Amounts = std::map<std::string, int64_t, std::less<>>;

struct DialectParser {
  Dialect dialect;
  // Appended to the error "is not a whole number": advice on what to request instead.
  std::string_view whole_number_hint;
  // Sets count and shares of `request`, whose name, phase and dialect are set. At least one amount
  // is not 0.
  Status (*parse)(const Amounts& amounts, const DialectOptions& options, ContainerRequest* request);
};

extern const DialectParser kNvidiaGpu;
extern const DialectParser kNvidiaMig;
extern const DialectParser kGpuMem;
extern const DialectParser kVcuda;

// `container "main": tencent.com/vcuda-core: 150 is …`
template <typename... Args>
Status Reject(std::string_view container, std::string_view resource,
              fmt::format_string<Args...> format, Args&&... args) {
  return Error(Code::kInvalidArgument, "container \"{}\": {}: {}", container, resource,
               fmt::format(format, std::forward<Args>(args)...));
}

// `amount` × `unit` as the memory of a share; rejected above kMaxShareMemory.
Result<Bytes> ShareMemory(std::string_view container, std::string_view resource, int64_t amount,
                          Bytes unit);

// Sets the request to `count` whole devices; rejects a count above kMaxDevicesPerContainer.
Status SetWholeDevices(std::string_view resource, int64_t count, ContainerRequest* request);

}  // namespace tessera::device::dialects
