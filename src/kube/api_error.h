// SPDX-License-Identifier: Apache-2.0
// Converts error responses of the API server to Status. Pure; any thread.
//
//   400, 415, 422  INVALID_ARGUMENT      401  UNAUTHENTICATED      403  PERMISSION_DENIED
//   404            NOT_FOUND             409  ABORTED (Conflict), ALREADY_EXISTS (AlreadyExists)
//   410            OUT_OF_RANGE: the resource version or the continue token is too old: list again
//   429            RESOURCE_EXHAUSTED    504, reason Timeout  DEADLINE_EXCEEDED
//   500            INTERNAL              502, 503             UNAVAILABLE
//   400 from a TLS port that got plain HTTP: FAILED_PRECONDITION
//
// The message contains the server's message, its reason and the HTTP status. For a rejected apply
// it names each conflicting field and its manager instead of the server's message.
#pragma once

#include <optional>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/raw_object.h"
#include "src/net/http.h"

namespace tessera::kube {

// REQUIRES: the HTTP status is outside 200-299.
Status ErrorOf(const net::Response& response);
// Whether the body is a Status object of the API, not text of a filter in the server or of a proxy.
bool IsApiStatus(const net::Response& response);
// For the Status in an ERROR event of a watch. `http_status` is used if the Status has no code.
Status ErrorOf(const ServerStatus& server_status, int http_status);
// Retry-After in seconds, bounded to [0, 5 min]; the form with a date is ignored.
std::optional<Duration> RetryAfter(const net::Response& response);
std::optional<Duration> RetryAfter(const ServerStatus& server_status);

}  // namespace tessera::kube
