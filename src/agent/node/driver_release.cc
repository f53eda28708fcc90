// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/driver_release.h"

#include <fmt/format.h>

#include <utility>

#include "src/base/file.h"
#include "src/base/log.h"

namespace tessera::agent {

DriverReleaseWatch::DriverReleaseWatch(TaskRunner* runner, std::string file, Events events)
    : runner_(runner),
      file_(std::move(file)),
      events_(std::move(events)),
      gate_(std::make_shared<gpu::DriverGate>(
          fmt::format("the driver is closed, because {} exists: its upgrade is in progress, or an "
                      "administrator has closed it",
                      file_))),
      watcher_(runner, DirName(file_),
               {.on_appeared =
                    [this](const std::string& name) {
                      if (name == BaseName(file_)) SetClosed(true);
                    },
                .on_vanished =
                    [this](const std::string& name) {
                      if (name == BaseName(file_)) SetClosed(false);
                    },
                .on_rescan = [this] { SetClosed(PathExists(file_)); }}) {
  gate_->SetClosed(PathExists(file_));
}

void DriverReleaseWatch::SetClosed(bool closed) {
  if (gate_->closed() == closed) return;
  gate_->SetClosed(closed);
  Log(Severity::kWarning, closed ? "closed the driver for maintenance" : "opened the driver again",
      {{"file", file_}});
  events_.on_change();
  for (const Duration delay : kCheckDelays) {
    runner_->PostDelayed(delay, [this, weak = weak_.Get()] {
      if (weak) events_.on_check();
    });
  }
}

}  // namespace tessera::agent
