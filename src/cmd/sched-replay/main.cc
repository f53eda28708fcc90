// SPDX-License-Identifier: Apache-2.0
// sched-replay: replays a cluster trace through the placement policies.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/parse_flags.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/placement/policy.h"
#include "src/replay/report.h"
#include "src/replay/study.h"
#include "src/replay/timeline.h"
#include "src/replay/timeline_report.h"
#include "src/replay/trace.h"
#include "src/replay/workload.h"

namespace tessera {
namespace {

constexpr int64_t kMaxSeeds = 10'000;

struct ReplayFlags {
  std::string nodes_file, pods_file;
  std::string policies{placement::kDefaultPolicy};
  std::string seeds = "42-51";
  std::optional<int> load_percent;  // default: 130, with --timeline 100
  int jobs = 0;                     // 0: all cores
  bool prints_json = false, prints_csv = false;
  std::string plot_file;
  bool shares_by_memory = false;
  bool uses_timeline = false, as_recorded = false, moves_pods = false;
};

// Parses names of placement::Policies(), in any case, or "all". INVALID_ARGUMENT lists the
// policies.
Result<std::vector<std::string>> ParsePolicies(const std::string& text) {
  std::vector<std::string> names;
  if (text == "all") {
    for (const placement::PolicyInfo& info : placement::Policies()) names.emplace_back(info.name);
    return names;
  }
  for (const std::string_view name : SplitList(text)) {
    ASSIGN_OR_RETURN(const placement::PolicyInfo* info, placement::FindPolicy(name));
    const std::string variant = ToLower(name.substr(std::min(name.find('-'), name.size())));
    const std::string full_name = std::string(info->name) + variant;
    if (std::ranges::find(names, full_name) == names.end()) names.push_back(full_name);
  }
  if (names.empty()) return Error(Code::kInvalidArgument, "no policy is named: see --help");
  return names;
}

// Parses "42-51" or "1,2,7-9". INVALID_ARGUMENT: not a list of ranges, or too long.
Result<std::vector<uint64_t>> ParseSeeds(const std::string& text) {
  std::vector<uint64_t> seeds;
  for (const std::string_view part : SplitList(text)) {
    const auto ends = Split(part, '-');
    const Result<int64_t> first = ParseInt(ends.front()), last = ParseInt(ends.back());
    if (ends.size() > 2 || !first.ok() || !last.ok() || *last < *first ||
        *last - *first >= kMaxSeeds - static_cast<int64_t>(seeds.size())) {
      return Error(Code::kInvalidArgument,
                   "invalid seeds \"{}\": want a number or a range like 42-51, at most {} in all",
                   part, kMaxSeeds);
    }
    for (int64_t seed = *first; seed <= *last; ++seed) {
      seeds.push_back(static_cast<uint64_t>(seed));
    }
  }
  if (seeds.empty()) return Error(Code::kInvalidArgument, "no seed in \"{}\"", text);
  return seeds;
}

std::string PolicyHelp() {
  std::string help = "names separated by commas, or all:";
  for (const placement::PolicyInfo& info : placement::Policies()) {
    help += fmt::format("\n{}: {}", info.name, info.help);
  }
  return help;
}

std::string ExitHelp() {
  const auto of = [](Code code) { return InfoOf(code).exit_code; };
  return fmt::format(
      "Exit status: 0 done; {} invalid options, or a file that is not a list of nodes or pods, or "
      "has no GPUs;\n{} no such file; {} no permission to read or write it; {} --timeline for a "
      "list without times;\n{} no space for the output.",
      of(Code::kInvalidArgument), of(Code::kNotFound), of(Code::kPermissionDenied),
      of(Code::kFailedPrecondition), of(Code::kResourceExhausted));
}

template <typename Parse>
CLI::Validator ValidatorOf(Parse parse) {
  return CLI::Validator(
      [parse](std::string& text) {
        const auto parsed = parse(text);
        return parsed.ok() ? std::string() : parsed.status().message();
      },
      "");
}

void AddTimelineFlags(CLI::App* app, ReplayFlags* flags) {
  CLI::Option* timeline = app->add_flag(
      "--timeline", flags->uses_timeline,
      "let pods arrive over time, wait while they fit nowhere, and end: a steady load on "
      "all nodes, sampled from the list. --load is then the GPU time that the pods request, in "
      "percent of the cluster's");
  timeline->excludes("--shares-by-memory");
  app->add_flag("--as-recorded", flags->as_recorded,
                "with --timeline: replay each pod of the list once, at its own time, and ignore "
                "--load")
      ->needs(timeline);
  app->add_flag("--moves", flags->moves_pods,
                "with --timeline: move running pods if that makes room for a waiting pod, instead "
                "of only counting such moves")
      ->needs(timeline);
}

// `flags` must outlive `app`.
void AddReplayFlags(CLI::App* app, ReplayFlags* flags) {
  app->add_option("--nodes", flags->nodes_file, "CSV file: sn, cpu_milli, memory_mib, gpu, model")
      ->required()
      ->type_name("FILE");
  app->add_option("--pods", flags->pods_file,
                  "CSV file: name, cpu_milli, memory_mib, num_gpu, gpu_milli and, optionally, "
                  "gpu_spec, creation_time, deletion_time")
      ->required()
      ->type_name("FILE");
  app->add_option("--policy", flags->policies, PolicyHelp())
      ->type_name("NAME,...")
      ->check(ValidatorOf(ParsePolicies))
      ->capture_default_str();
  app->add_option("--seeds", flags->seeds,
                  "seeds, for each of which each policy runs once: 42-51, or 1,2,7-9")
      ->type_name("LIST")
      ->check(ValidatorOf(ParseSeeds))
      ->capture_default_str();
  app->add_option("--load", flags->load_percent,
                  "total GPU requests of the arriving pods, in percent of all GPUs")
      ->type_name("PERCENT")
      ->check(CLI::Range(1, 1000).description(""))
      ->default_str("130, with --timeline 100");
  app->add_flag("--shares-by-memory", flags->shares_by_memory,
                "read gpu_milli of shares as thousandths of a GPU's device memory instead of its "
                "compute; not with --timeline");
  app->add_option("--jobs", flags->jobs, "parallel runs; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024).description(""))
      ->capture_default_str();
  CLI::Option* json = app->add_flag("--json", flags->prints_json, "print JSON instead of tables");
  app->add_flag("--csv", flags->prints_csv, "print CSV instead of tables")->excludes(json);
  app->add_option("--plot", flags->plot_file, "also draw allocation and fragmentation over load")
      ->type_name("FILE.svg");
  AddTimelineFlags(app, flags);
  app->footer(ExitHelp());
}

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

// Replays the trace and prints the results.
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

}  // namespace
}  // namespace tessera

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
