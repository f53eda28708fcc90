// SPDX-License-Identifier: Apache-2.0
// Parses JSON bodies of requests, and makes JSON responses of the console's API. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/console/workload.h"
#include "src/formats/json.h"
#include "src/net/http.h"

namespace tessera::console {

net::Response JsonTextResponse(int status, std::string text);
net::Response JsonResponse(const Json& json);
// {"code":"NOT_FOUND","error":"…"} with the status of the code.
net::Response ErrorResponse(const Status& status);
// The result as JSON, or its error.
net::Response ResponseOf(const Result<Json>& result);
net::Response MethodNotAllowed(std::string_view allowed);
// {"fields":{"name":"…"}}
net::Response FieldErrorsResponse(const FieldErrors& errors);

// INVALID_ARGUMENT if the body is no JSON object, or if an HTML form of another site could send a
// body of this Content-Type.
Result<Json> BodyOf(const net::Request& request);

// Whether the text can be the name of an object. Such a name adds no terms to a field selector and
// no segments to a path.
bool IsObjectName(std::string_view text);
// Compares in constant time.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace tessera::console
