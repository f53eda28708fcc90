// SPDX-License-Identifier: Apache-2.0
// Pods and requests as the API server sends them to a webhook, for tests.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/admission/review.h"
#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera::admission::testing {

// A pod "p" with one container "main".
Json PodJson(const StringMap& limits, const StringMap& annotations = {});

// A request of a user in namespace "ml".
AdmissionRequest CreateOf(Json pod);
AdmissionRequest UpdateOf(Json before, Json after);
// The body that the API server would post.
std::string ReviewOf(const AdmissionRequest& request);

}  // namespace tessera::admission::testing
