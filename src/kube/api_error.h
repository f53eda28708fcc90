// SPDX-License-Identifier: Apache-2.0
// What an answer of the API server means as a Status. Pure; any thread.
//
//   400, 415, 422  INVALID_ARGUMENT      401  UNAUTHENTICATED      403  PERMISSION_DENIED
//   404            NOT_FOUND             409  ABORTED (Conflict), ALREADY_EXISTS (AlreadyExists)
//   410            OUT_OF_RANGE: the resource version, or the continue token, is too old: list anew
//   429            RESOURCE_EXHAUSTED    504, reason Timeout  DEADLINE_EXCEEDED
//   500            INTERNAL              502, 503             UNAVAILABLE
//   400 of a TLS port to plain HTTP: FAILED_PRECONDITION
//
// The message carries the server's words, its reason and the HTTP status.
#pragma once

#include <optional>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/kube/raw_object.h"
#include "src/net/http.h"

namespace tessera::kube {

// REQUIRES: a status outside 200-299.
Status ErrorOf(const net::Response& response);
// Whether the body is a Status object of the API, and not text of a filter or proxy before it.
bool IsApiStatus(const net::Response& response);
// As a watch sends it in an ERROR event. `http_status` counts where it has no code of its own.
Status ErrorOf(const ServerStatus& said, int http_status);
// Retry-After in seconds, bounded to [0, 5 min]; the form with a date is ignored.
std::optional<Duration> RetryAfter(const net::Response& response);
std::optional<Duration> RetryAfter(const ServerStatus& said);

}  // namespace tessera::kube
