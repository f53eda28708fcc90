// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/validation_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

// Marks the agent's own files. Shells that source driver-ready read it as a comment.
constexpr std::string_view kOwnMarker = "# written by tessera-agent\n";
constexpr size_t kMaxFile = 64 << 10;
constexpr std::string_view kRootVariable = "NVIDIA_DRIVER_ROOT=";

bool IsOwnFile(const std::string& path) {
  const Result<std::string> text = ReadFile(path, kMaxFile);
  return text.ok() && text->starts_with(kOwnMarker);
}

std::optional<std::string> MarkerIf(bool exists) {
  return exists ? std::optional(std::string(kOwnMarker)) : std::nullopt;
}

// The content of driver-ready, as NVIDIA's validator writes it.
std::string DriverReadyText(const DriverRoot& driver, const std::string& dev_root) {
  const bool is_host_driver = driver.host_path == "/";
  const bool own_dev = dev_root != "/";
  // NVIDIA's containers have the host's root at /host, and the root of a driver container at its
  // host path.
  return fmt::format(
      "{}IS_HOST_DRIVER={}\nNVIDIA_DRIVER_ROOT={}\nDRIVER_ROOT_CTR_PATH={}\nNVIDIA_DEV_ROOT={}\n"
      "DEV_ROOT_CTR_PATH={}\n",
      kOwnMarker, is_host_driver, driver.host_path, is_host_driver ? "/host" : driver.host_path,
      dev_root, own_dev ? dev_root : "/host");
}

}  // namespace

ValidationFiles::ValidationFiles(TaskRunner* runner, std::string dir)
    : dir_(std::move(dir)),
      watcher_(runner, dir_,
               {.on_appeared = [](const std::string&) {},
                .on_vanished =
                    [this](const std::string& name) {
                      if (contents_.contains(name)) Write();
                    },
                .on_rescan = [this] { Write(); }}) {
  const Status status = MakeDirs(dir_);
  if (!status.ok()) {
    Log(Severity::kWarning, "cannot write validation files", {{"error", status.message()}});
  }
  watcher_.Start();
}

ValidationFiles::~ValidationFiles() {
  for (auto& [name, content] : contents_) content.reset();
  Write();
}

void ValidationFiles::Set(const ValidationState& state) {
  contents_ = {
      {"driver-ready",
       state.driver ? std::optional(DriverReadyText(*state.driver, state.dev_root)) : std::nullopt},
      {"toolkit-ready", MarkerIf(state.toolkit_ready)},
      {"plugin-ready", MarkerIf(state.plugin_ready)}};
  Write();
}

void ValidationFiles::Write() {
  for (const auto& [name, content] : contents_) {
    const std::string path = JoinPath(dir_, name);
    if (PathExists(path) && !IsOwnFile(path)) continue;
    if (!content) {
      ::unlink(path.c_str());
      continue;
    }
    if (ReadFile(path, kMaxFile).value_or("") == *content) continue;
    const Status status = WriteFileAtomically(path, *content, 0644);
    if (!status.ok() && !std::exchange(error_logged_, true)) {
      Log(Severity::kWarning, "cannot write a validation file", {{"error", status.message()}});
    }
  }
}

std::string DriverRootNamedIn(const std::string& driver_ready) {
  const Result<std::string> text = ReadFile(driver_ready, kMaxFile);
  if (!text.ok() || text->starts_with(kOwnMarker)) return {};
  for (std::string_view line : Split(*text, '\n')) {
    if (!line.starts_with(kRootVariable)) continue;
    line.remove_prefix(kRootVariable.size());
    while (!line.empty() && (line.back() == '"' || line.back() == '\r')) line.remove_suffix(1);
    if (!line.empty() && line.front() == '"') line.remove_prefix(1);
    return line.starts_with('/') ? std::string(line) : std::string();
  }
  return {};
}

}  // namespace tessera::agent
