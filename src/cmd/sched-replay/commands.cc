// SPDX-License-Identifier: Apache-2.0
#include "src/cmd/sched-replay/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "src/base/file.h"
#include "src/replay/report.h"
#include "src/replay/study.h"
#include "src/replay/timeline.h"
#include "src/replay/timeline_report.h"
#include "src/replay/trace.h"
#include "src/replay/workload.h"

namespace tessera {
namespace {

int ParallelRunsOf(const ReplayFlags& flags) {
  if (flags.jobs > 0) return flags.jobs;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// Rewrites the progress line. Prints only on a terminal.
void ShowProgress(size_t done, size_t total) {
  if (::isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\x1b[K");
  if (done < total) fmt::print(stderr, "{} of {} runs", done, total);
  std::fflush(stderr);
}

void WarnUnknownModels(const std::vector<replay::TraceNode>& nodes,
                       const std::vector<replay::TracePod>& pods) {
  const replay::UnknownModels unknown = replay::FindUnknownModels(nodes, pods);
  if (unknown.pods == 0) return;
  fmt::print(
      stderr,
      "note: {} pods fit nowhere, because no node has the GPU models that they request: {}\n",
      unknown.pods, unknown.Text());
}

// Called before the replay, so that an unwritable path fails at once.
Result<Fd> OpenPlot(const std::string& path) {
  if (path.empty()) return Fd();
  return OpenOutput(path).Annotate("--plot");
}

template <typename Results>
Status Print(const ReplayFlags& flags, const Fd& plot, const Results& results) {
  const std::string text = flags.prints_json  ? replay::ToJson(results)
                           : flags.prints_csv ? replay::ToCsv(results)
                                              : replay::ToTable(results);
  const Status printed = WriteFd(STDOUT_FILENO, text).Annotate("standard output");
  if (plot.valid()) {
    RETURN_IF_ERROR(
        WriteOutput(plot.get(), replay::ToSvg(results)).Annotate("--plot " + flags.plot_file));
  }
  return printed;
}

}  // namespace

Status Replay(const ReplayFlags& flags) {
  ASSIGN_OR_RETURN(const auto policies, ParsePolicies(flags.policies));
  ASSIGN_OR_RETURN(const auto seeds, ParseSeeds(flags.seeds));
  ASSIGN_OR_RETURN(const auto nodes, replay::ReadNodes(flags.nodes_file));
  ASSIGN_OR_RETURN(const replay::PodList list, replay::ReadPods(flags.pods_file));
  WarnUnknownModels(nodes, list.pods);
  ASSIGN_OR_RETURN(const Fd plot, OpenPlot(flags.plot_file));
  if (flags.uses_timeline) {
    ASSIGN_OR_RETURN(const auto results,
                     replay::RunTimelines(nodes, list,
                                          {.policies = policies,
                                           .seeds = seeds,
                                           .load = flags.load_percent.value_or(100),
                                           .as_recorded = flags.as_recorded,
                                           .moves = flags.moves_pods,
                                           .threads = ParallelRunsOf(flags),
                                           .progress = ShowProgress}));
    return Print(flags, plot, results);
  }
  const SystemClock clock;
  ASSIGN_OR_RETURN(
      const replay::Study study,
      replay::RunStudy(nodes, list.pods,
                       {.policies = policies,
                        .seeds = seeds,
                        .load = flags.load_percent.value_or(130),
                        .share_resource = flags.shares_by_memory ? replay::ShareResource::kMemory
                                                                 : replay::ShareResource::kCompute,
                        .keep_latencies = !flags.prints_json && !flags.prints_csv,
                        .threads = ParallelRunsOf(flags),
                        .progress = ShowProgress},
                       clock));
  if (study.means.front().points.size() <= 1) {
    fmt::print(
        stderr,
        "note: no pod arrived: no pod of the list requests a GPU, or each requests more than "
        "--load percent of all GPUs\n");
  }
  return Print(flags, plot, study);
}

}  // namespace tessera
