// SPDX-License-Identifier: Apache-2.0
// sched-replay: replays a cluster trace through the placement policies.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "src/base/parse_flags.h"
#include "src/base/version.h"
#include "src/cmd/sched-replay/commands.h"
#include "src/cmd/sched-replay/flags.h"

int main(int argc, char** argv) {
  CLI::App app{"Replays a trace of a cluster through the placement policies.", "sched-replay"};
  app.get_formatter()->column_width(26);
  app.set_version_flag("--version", std::string(tessera::kTesseraVersion));
  tessera::ReplayFlags flags;
  tessera::AddReplayFlags(&app, &flags);
  if (const auto done = tessera::ParseFlags(&app, argc, argv)) return *done;
  const tessera::Status status = tessera::Replay(flags);
  if (status.ok()) return 0;
  fmt::print(stderr, "sched-replay: {}\n", status.message());
  return tessera::InfoOf(status.code()).exit_code;
}
