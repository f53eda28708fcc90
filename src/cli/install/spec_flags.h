// SPDX-License-Identifier: Apache-2.0
// Reads settings from a command line: -f FILE and --set NAME=VALUE, as with Helm.
//
// Threads: pure, apart from reading the files. Errors: INVALID_ARGUMENT names file and line, or the
// assignment, and the remedy.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace CLI {
class App;
}

namespace tessera::cli {

// The values of -f and --set, not parsed yet.
struct SpecOptions {
  std::vector<std::string> files, assignments;
};
void AddSpecOptions(CLI::App* app, SpecOptions* options);

// Merges the files in their order, then the assignments. "-" is standard input. If a file is a
// resource of kind Tessera, its spec has the settings.
Result<Json> ReadSpec(const std::vector<std::string>& files,
                      const std::vector<std::string>& assignments);

// "a.b=c,d={x,y},e=null" as an object: true, false, null and whole numbers are values of their
// types, {x,y} is a list, and "\" before a dot, comma, brace or "=" takes away its special meaning.
Result<Json> ParseAssignments(const std::string& text);

// Merges `changes` over `spec`. Keeps nulls: a null stands for the default, or removes a member of
// the default.
Json CombineSpecs(const Json& spec, const Json& changes);

}  // namespace tessera::cli
