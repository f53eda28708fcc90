// SPDX-License-Identifier: Apache-2.0
#include "src/cmd/sched-replay/flags.h"

#include <algorithm>

#include "src/base/strings.h"
#include "src/placement/policy.h"

namespace tessera {
namespace {

constexpr int64_t kMaxSeeds = 10'000;

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

}  // namespace

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

}  // namespace tessera
