// SPDX-License-Identifier: Apache-2.0
// Plans the edits of an engine's configuration that add tessera-runtime. Pure: reads through
// ConfigTree, changes nothing, runs nothing. Threads: one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera::engine {

enum class EngineKind { kContainerd, kDocker, kCrio };

struct Version {
  int major = 0;
  int minor = 0;
  auto operator<=>(const Version&) const = default;
};
// Parses "2.2.9+unknown" or "v1.7.0". nullopt if `text` does not begin with two numbers.
std::optional<Version> ParseVersion(std::string_view text);

struct EngineSettings {
  std::string config;   // the engine's main file
  std::string drop_in;  // Tessera's own file, for engines with drop-ins; empty: edit in place
  std::string runtime_name = "nvidia";
  std::string runtime_path;
  bool set_as_default = false;
  bool enable_cdi = false;
  std::optional<Version> engine_version;  // nullopt: plan for every version
};

// The engine's files without Tessera's edits.
struct ConfigTree {
  // nullopt if the file does not exist.
  std::function<Result<std::optional<std::string>>(const std::string& path)> read;
  std::function<std::vector<std::string>(const std::string& pattern)> glob;
};

enum class Format { kToml, kJson };

// Changes keys of a text and keeps all its other bytes: comments, order, spacing. Used where a
// drop-in does not suffice: daemon.json, the file with containerd's CRI section before 2.1, and
// containerd's list of imports. Undo uses it if an administrator has changed the file since. Errors
// name the line.
Result<std::string> EditText(Format format, std::string_view text,
                             const std::vector<TextEdit>& edits);

struct FilePlan {
  std::string path;
  Format format = Format::kToml;
  // Content to edit if the file does not exist or is Tessera's drop-in.
  std::string initial_text;
  bool is_drop_in = false;
  KeyPath owned_table;  // undo removes this table as a whole if the file did not have it before
  std::vector<TextEdit> edits;
};

struct Plan {
  std::vector<FilePlan> files;
  // All imports of the main file in merge order, for validation of a copy.
  std::vector<std::string> imports;
  std::vector<std::string> notes;  // for the administrator
};

// INVALID_ARGUMENT names the file and line that do not parse; FAILED_PRECONDITION: another file
// would override Tessera's edits.
Result<Plan> PlanContainerd(const EngineSettings& settings, const ConfigTree& tree);
Result<Plan> PlanDocker(const EngineSettings& settings, const ConfigTree& tree);
Result<Plan> PlanCrio(const EngineSettings& settings, const ConfigTree& tree);
Result<Plan> MakePlan(EngineKind engine, const EngineSettings& settings, const ConfigTree& tree);

// On a reload dockerd keeps the values of removed keys and ignores a deleted file. So Tessera's
// keys are removed in two steps: their default values are written and reloaded, then the keys are
// removed from the file.
struct DockerReload {
  std::string text;             // daemon.json with Docker's defaults for missing keys
  std::string default_runtime;  // the default runtime that dockerd then reports
};
Result<DockerReload> MakeDockerReload(const std::optional<std::string>& text);

// `text` (nullopt: no such file) with the plan's edits.
Result<std::string> ApplyFilePlan(const FilePlan& file, const std::optional<std::string>& text);
// Edits that remove the plan's keys and restore their values in `text`.
Result<std::vector<TextEdit>> UndoEdits(const FilePlan& file,
                                        const std::optional<std::string>& text);

// Finds handlers, hooks and CDI files of NVIDIA's toolkit, which give GPUs without a grant. Returns
// a line for the administrator for each: file, finding, remedy. Ignores the handler
// `settings.runtime_name`, whose program the plan replaces by tessera-runtime. Skips unreadable
// files.
std::vector<std::string> FindLeftovers(const EngineSettings& settings, const Plan& plan,
                                       const ConfigTree& tree);

}  // namespace tessera::engine
