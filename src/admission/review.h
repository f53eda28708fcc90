// SPDX-License-Identifier: Apache-2.0
// AdmissionReview of admission.k8s.io/v1: the question that the API server asks a webhook, and the
// answer to it. Not for deciding (rules.h).
//
// Threads: values and pure functions. Errors: INVALID_ARGUMENT and RESOURCE_EXHAUSTED say what in
// the body is not as it must be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::admission {

// The largest object that the API server takes, twice (an update has the old one, too), and the
// frame around them.
inline constexpr size_t kMaxAdmissionBody = 8 << 20;

struct AdmissionRequest {
  std::string uid;
  std::string operation;  // "CREATE", "UPDATE", "DELETE", "CONNECT"
  std::string group;      // of the resource; "" is the core group
  std::string resource;   // "pods"
  std::string subresource;
  std::string ns;
  std::string user;
  Json object;      // null where there is none
  Json old_object;  // of an UPDATE
};
Result<AdmissionRequest> ParseAdmissionReview(std::string_view body);

struct AdmissionAnswer {
  Status refusal;                     // OK: allowed
  std::vector<std::string> warnings;  // kubectl prints them, also beside a refusal
  Json::Array patch;                  // operations of RFC 6902
};
// Long warnings are cut, and too many left out, as the API server would do.
std::string SerializeAdmissionReview(const std::string& uid, const AdmissionAnswer& answer);

}  // namespace tessera::admission
