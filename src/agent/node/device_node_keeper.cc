// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/device_node_keeper.h"

#include <utility>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/gpu/driver_files.h"

namespace tessera::agent {

DeviceNodeKeeper::DeviceNodeKeeper(TaskRunner* runner, DeviceNodeKeeperOptions options)
    : runner_(runner),
      options_(std::move(options)),
      watcher_(runner, JoinPath(options_.dev_root, "dev"),
               {.on_appeared = [](const std::string&) {},
                .on_vanished =
                    [this](const std::string& name) {
                      if (name.starts_with("nvidia")) MakeNodes();
                    },
                .on_rescan = [this] { MakeNodes(); }}) {}

void DeviceNodeKeeper::Start() {
  watcher_.Start();
  Update();
}

void DeviceNodeKeeper::Update() {
  MakeNodes();
  if (options_.driver_has_gpus() || retry_armed_) return;
  retry_armed_ = true;
  runner_->PostDelayed(kRetryInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    retry_armed_ = false;
    Update();
  });
}

void DeviceNodeKeeper::MakeNodes(const std::string& driver_root) {
  LogReport(nodes_.Update(
      {.proc_root = gpu::ProcRootOf(driver_root),
       .dev_root = options_.dev_root,
       .load_module = [&](const std::string& module) { LoadModule(driver_root, module); }}));
}

void DeviceNodeKeeper::LogReport(const DeviceNodeReport& report) {
  for (const std::string& path : report.made_paths) {
    Log(Severity::kInfo, "made a device node", {{"path", path}});
  }
  for (const std::string& path : report.removed_paths) {
    Log(Severity::kInfo, "removed a device node of a GPU that is gone", {{"path", path}});
  }
  std::string problems;
  for (const std::string& problem : report.problems) problems.append(problem).append("; ");
  if (problems != last_problems_ && !problems.empty()) {
    Log(Severity::kWarning, "cannot make all device nodes", {{"problems", problems}});
  }
  last_problems_ = std::move(problems);
}

// Does nothing with a simulated driver, which has no kernel module.
void DeviceNodeKeeper::LoadModule(const std::string& driver_root, const std::string& module) {
  const MonotonicTime now = runner_->clock().Now();
  if (!PathExists("/sys/module/nvidia") || now < next_modprobe_) return;
  next_modprobe_ = now + kModprobeInterval;
  if (!modprobe_) modprobe_ = std::make_unique<Worker>("modprobe");
  modprobe_->Post([this, module, runner = runner_, root = driver_root, weak = weak_.Get()] {
    runner->Post([this, module, status = LoadKernelModule(root, module), weak] {
      if (!weak) return;
      if (!status.ok()) {
        Log(Severity::kError, "cannot load a kernel module", {{"error", status.message()}});
        return;
      }
      Log(Severity::kInfo, "loaded a kernel module", {{"module", module}});
      MakeNodes();
    });
  });
}

}  // namespace tessera::agent
