// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes AdmissionReview of admission.k8s.io/v1: the API server's request to a
// webhook, and the response. Whether a request is allowed is decided in rules.h.
//
// Threads: requests and answers are values, and each thread may use its own copy; the functions are
// pure. Errors: INVALID_ARGUMENT and RESOURCE_EXHAUSTED name the invalid part of the body.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/formats/json.h"

namespace tessera::admission {

// Enough for two objects of the largest size that the API server accepts, because an update
// includes the old object, and for the rest of the review.
inline constexpr size_t kMaxAdmissionBytes = 8 << 20;

struct AdmissionRequest {
  Uid uid;
  std::string operation;  // "CREATE", "UPDATE", "DELETE", "CONNECT"
  std::string group;      // of the resource; "" is the core group
  std::string resource;   // "pods"
  std::string subresource;
  std::string ns;
  std::string user;
  Json object;      // null: none
  Json old_object;  // of an UPDATE
};
Result<AdmissionRequest> ParseAdmissionReview(std::string_view body);

struct AdmissionAnswer {
  Status rejection;                   // OK: allowed
  std::vector<std::string> warnings;  // printed by kubectl, also with a rejection
  Json::Array patch;                  // operations of RFC 6902
};
// Truncates long warnings and drops excess warnings, as the API server would do.
std::string SerializeAdmissionReview(const Uid& uid, const AdmissionAnswer& answer);

}  // namespace tessera::admission
