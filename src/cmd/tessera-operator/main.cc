// SPDX-License-Identifier: Apache-2.0
// tessera-operator: installs Tessera, and keeps it as the resource Tessera describes it.
#include <CLI/CLI.hpp>
#include <string>

#include "src/base/parse_flags.h"
#include "src/base/version.h"
#include "src/cmd/tessera-operator/flags.h"
#include "src/operator/operator.h"

int main(int argc, char** argv) {
  CLI::App app{"Installs and keeps Tessera as the resource Tessera says.", "tessera-operator"};
  app.set_version_flag("--version", std::string(tessera::kTesseraVersion));
  app.footer("SIGTERM releases the Lease.");
  tessera::OperatorFlags flags;
  tessera::AddOperatorFlags(&app, &flags);
  if (const auto done = tessera::ParseFlags(&app, argc, argv)) return *done;
  tessera::ConfigureLogFormat(flags.log_format);
  return tessera::operators::RunOperator(tessera::ToOptions(flags));
}
