// SPDX-License-Identifier: Apache-2.0
// Starts pods of one size on shared GPUs, in shuffled orders, and uses their names again. Counts
// the pods that got another GPU than the assigned GPU. Measures Allocate and grants at their
// sockets, the journal's flush to disk included.
//
//   share_bench [--allocate [--blind]] [--starts 10000] [--at-once 1] [--seed 1]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "src/grant/journal.h"
#include "tests/component/share_drill.h"

namespace tessera::testing {
namespace {

void Print(const char* what, std::vector<double> micros) {
  std::sort(micros.begin(), micros.end());
  const auto at = [&](double part) {
    return micros[static_cast<size_t>(part * static_cast<double>(micros.size() - 1))] / 1000;
  };
  fmt::print("{:10} p50 {:7.3f} ms  p95 {:7.3f} ms  p99 {:7.3f} ms  longest {:7.3f} ms\n", what,
             at(0.5), at(0.95), at(0.99), at(1));
}

// The time that the disk alone takes for a record of the size of a grant.
std::vector<double> FlushTimes() {
  const TempDir dir;
  grant::Journal::Recovery recovery;
  auto journal = grant::Journal::Open(*DirFd::Open(dir.path()), "floor", &recovery);
  std::vector<double> micros;
  for (int i = 0; i < 500; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!journal->Append(std::string(450, 'x')).ok()) break;
    micros.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  return micros;
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) {
  tessera::testing::DrillOptions options;
  CLI::App app{"Measures starts of pods on shared GPUs."};
  bool allocate = false;
  app.add_flag("--allocate", allocate, "as with --binding=allocate");
  app.add_flag("--blind", options.pod_resources_fails,
               "the kubelet does not answer which pod it is admitting");
  app.add_option("--starts", options.starts)->capture_default_str();
  app.add_option("--at-once", options.at_once)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (allocate) options.binding = tessera::agent::BindingMode::kAllocate;
  const auto result = tessera::testing::RunShareDrill(options);
  fmt::print(
      "{} starts of {} GiB on {} GPUs, {} under a name used before: {} on another GPU than "
      "assigned, {} refused\n",
      result.starts, options.gib_per_pod, options.gpus, result.remade, result.wrong,
      result.refused);
  if (result.refused > 0) fmt::print("first refusal: {}\n", result.first_refusal);
  tessera::testing::Print("Allocate", result.allocate_us);
  if (allocate) tessera::testing::Print("its own", result.allocate_agent_us);
  tessera::testing::Print(allocate ? "PreStart" : "grant", result.grant_us);
  tessera::testing::Print("no decision", result.rejected_us);
  tessera::testing::Print("its flush", tessera::testing::FlushTimes());
  return result.wrong == 0 ? 0 : 1;
}
