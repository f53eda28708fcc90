// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/leftovers.h"

#include <algorithm>
#include <array>

#include "src/base/file.h"
#include "src/formats/toml.h"

namespace tessera::engine {
namespace {

constexpr std::array<std::string_view, 6> kPrograms = {
    "nvidia-container-runtime",        "nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy", "nvidia-container-runtime.experimental",
    "nvidia-container-runtime-hook",   "nvidia-container-toolkit",
};
// Hook folders of CRI-O and podman.
constexpr std::array<std::string_view, 2> kHookFolders = {"/etc/containers/oci/hooks.d",
                                                          "/usr/share/containers/oci/hooks.d"};
constexpr std::array<std::string_view, 2> kCdiFolders = {"/etc/cdi", "/var/run/cdi"};

bool IsNvidiaProgram(const Json& value) {
  return value.is_string() &&
         std::ranges::count(kPrograms, std::string_view(BaseName(value.string_value()))) != 0;
}

class LeftoverFinder {
 public:
  LeftoverFinder(const EngineSettings& settings, const ConfigTree& tree)
      : settings_(settings), tree_(tree) {}

  void ReadEngineFile(const std::string& path) {
    if (path == settings_.drop_in) return;
    const auto text = tree_.read(path);
    if (!text.ok() || !text->has_value()) return;
    const bool json = path.ends_with(".json");
    const Result<Json> document = json ? ParseJson(**text) : ParseToml(**text);
    if (document.ok()) Walk(path, *document, "", false);
  }

  void ReadHooks() {
    for (const std::string_view folder : kHookFolders) {
      for (const std::string& path : tree_.glob(JoinPath(folder, "*.json"))) {
        const auto text = tree_.read(path);
        const Result<Json> hook =
            text.ok() && text->has_value() ? ParseJson(**text) : Json::MakeObject();
        const Json* program = hook.ok() ? FindPath(*hook, {"hook", "path"}) : nullptr;
        if (program == nullptr || !IsNvidiaProgram(*program)) continue;
        found_.push_back(fmt::format(
            "{} runs {} for containers of CRI-O and podman, which gives GPUs that Tessera did not "
            "grant: remove the file",
            path, program->string_value()));
      }
    }
  }

  void ReadCdi() {
    for (const std::string_view folder : kCdiFolders) {
      for (const char* pattern : {"*.yaml", "*.json"}) {
        for (const std::string& path : tree_.glob(JoinPath(folder, pattern))) {
          const auto text = tree_.read(path);
          if (!text.ok() || !text->has_value()) continue;
          if ((*text)->find("nvidia.com/gpu") == std::string::npos) continue;
          found_.push_back(fmt::format(
              "{} describes GPUs for the Container Device Interface: an engine gives them to every "
              "container that names nvidia.com/gpu=..., bypassing Tessera: remove the file",
              path));
        }
      }
    }
  }

  std::vector<std::string> Found() { return std::move(found_); }

 private:
  // `handler` is the key below "runtimes" that contains `json`.
  void Walk(const std::string& path, const Json& json, const std::string& handler,
            bool in_runtimes) {
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.members()) {
      const std::string& name = in_runtimes ? key : handler;
      if (name == settings_.runtime_name) continue;
      if (IsNvidiaProgram(value)) {
        found_.push_back(fmt::format(
            "{}: the runtime handler \"{}\" leads to {}, which gives GPUs that Tessera did not "
            "grant: remove it, and RuntimeClasses that name it",
            path, name, value.string_value()));
      }
      Walk(path, value, name, key == "runtimes");
    }
  }

  const EngineSettings& settings_;
  const ConfigTree& tree_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> FindLeftovers(const EngineSettings& settings, const Plan& plan,
                                       const ConfigTree& tree) {
  LeftoverFinder finder(settings, tree);
  finder.ReadEngineFile(settings.config);
  for (const std::string& path : plan.imports) finder.ReadEngineFile(path);
  finder.ReadHooks();
  finder.ReadCdi();
  return finder.Found();
}

}  // namespace tessera::engine
