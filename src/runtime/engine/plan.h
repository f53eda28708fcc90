// SPDX-License-Identifier: Apache-2.0
// What has to stand in an engine's configuration so that it knows our runtime. Pure: reads through
// ConfigTree, changes nothing, runs nothing. Threads: one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera::engine {

enum class Engine { kContainerd, kDocker, kCrio };

struct Version {
  int major = 0;
  int minor = 0;
  auto operator<=>(const Version&) const = default;
};
// "2.2.9+unknown", "v1.7.0": nothing where it does not begin with two numbers.
std::optional<Version> ParseVersion(std::string_view text);

struct Wanted {
  std::string config;   // the engine's main file
  std::string drop_in;  // our own file, where the engine has drop-ins; empty: edit in place
  std::string runtime_name = "nvidia";
  std::string runtime_path;
  bool set_as_default = false;
  bool enable_cdi = false;
  std::optional<Version> engine_version;  // unknown: only what every version understands
};

// The engine's files as they are without us.
struct ConfigTree {
  // Nothing for a file that does not exist.
  std::function<Result<std::optional<std::string>>(const std::string& path)> read;
  std::function<std::vector<std::string>(const std::string& pattern)> glob;
};

enum class Format { kToml, kJson };

struct FilePlan {
  std::string path;
  Format format = Format::kToml;
  // The initial content of a file that does not exist, or that is ours alone.
  std::string start;
  bool ours_alone = false;
  KeyPath owned;  // a table that is ours as a whole if it was not there before
  std::vector<TextEdit> edits;
};

struct Plan {
  std::vector<FilePlan> files;
  // The main file with its imports spelled out, for a validation aside: paths in merge order.
  std::vector<std::string> imports;
  std::vector<std::string> notes;  // for the person
};

// INVALID_ARGUMENT: a file that does not parse, with its line; FAILED_PRECONDITION: nothing that we
// could write would take effect.
Result<Plan> PlanContainerd(const Wanted& wanted, const ConfigTree& tree);
Result<Plan> PlanDocker(const Wanted& wanted, const ConfigTree& tree);
Result<Plan> PlanCrio(const Wanted& wanted, const ConfigTree& tree);
Result<Plan> MakePlan(Engine engine, const Wanted& wanted, const ConfigTree& tree);

// On a reload dockerd keeps the values of keys that were removed, and ignores a file that was
// deleted.
struct DockerReload {
  std::string text;             // daemon.json with Docker's defaults where `text` says nothing
  std::string default_runtime;  // what dockerd then says is its default
};
Result<DockerReload> ReloadDockerWithout(const std::optional<std::string>& text);

// `text` (nothing: no such file) with the plan's edits in it.
Result<std::string> ApplyFilePlan(const FilePlan& file, const std::optional<std::string>& text);
// Edits that take the plan's keys out again and put back what stood there in `text`.
Result<std::vector<TextEdit>> UndoEdits(const FilePlan& file,
                                        const std::optional<std::string>& text);

}  // namespace tessera::engine
