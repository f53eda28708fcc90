// SPDX-License-Identifier: Apache-2.0
// Each function adds the options of a verb and returns its action; verbs.cc registers the verbs.
#pragma once

#include "src/cli/command_line.h"

namespace tessera::cli {

Action AddInstall(CLI::App* app);
Action AddUpgrade(CLI::App* app);
Action AddUninstall(CLI::App* app);
Action AddMigrate(CLI::App* app);
Action AddStatus(CLI::App* app);
Action AddDashboard(CLI::App* app);
Action AddNodes(CLI::App* app);
Action AddGpus(CLI::App* app);
Action AddPods(CLI::App* app);
Action AddExplain(CLI::App* app);
Action AddQuota(CLI::App* app);
Action AddTop(CLI::App* app);
Action AddLimit(CLI::App* app);
Action AddInspectGpushare(CLI::App* app);
Action AddDoctor(CLI::App* app);
Action AddTest(CLI::App* app);
Action AddSysdump(CLI::App* app);
Action AddVersion(CLI::App* app);
Action AddCompletion(CLI::App* app);

}  // namespace tessera::cli
