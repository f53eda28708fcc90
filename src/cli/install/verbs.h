// SPDX-License-Identifier: Apache-2.0
// `tessera install`, `upgrade` and `uninstall`. Each function adds the options of its verb to the
// command line and returns what runs it after parsing: a function that returns the exit code.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tessera::cli {

std::function<int()> AddInstall(CLI::App* app);
std::function<int()> AddUpgrade(CLI::App* app);
std::function<int()> AddUninstall(CLI::App* app);

}  // namespace tessera::cli
