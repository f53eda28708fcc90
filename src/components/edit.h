// SPDX-License-Identifier: Apache-2.0
// Edits Kubernetes objects as Json. Threads: pure functions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/components/settings.h"
#include "src/formats/json.h"

namespace tessera::components {

// The value at `path` below `object`. Creates missing objects on the way. REQUIRES: `object` and
// all values on the way are objects.
Json& MemberAt(Json& object, std::initializer_list<std::string_view> path);
// The item of an array with this `name`. REQUIRES: the array has such an item.
Json& ItemNamed(Json& array, std::string_view name);
void EraseItemNamed(Json& array, std::string_view name);
// Adds the members of `texts` that `object` lacks. Existing members stay, because selectors and the
// list of installed objects rely on Tessera's labels.
void AddMissingTexts(Json& object, const StringMap& texts);
void AppendItems(Json& array, const Json& items);
void AppendStrings(Json& array, const std::vector<std::string>& texts);
std::string JoinWithCommas(const std::vector<std::string>& texts);
// {"name": name}
Json NamedObject(std::string_view name);

// Set the image and the pull policy of a container, and the pull secrets of its pod.
void SetImage(Json& container, const ImageSettings& image, std::string_view program);
void SetPullSecrets(Json& pod_spec, const std::vector<std::string>& names);

}  // namespace tessera::components
