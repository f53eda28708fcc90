// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>

#include "api/names.h"
#include "src/cli/commands.h"
#include "src/cli/explanation.h"
#include "src/cli/json_of.h"
#include "src/cli/output/table.h"
#include "src/cli/output/text.h"
#include "src/cli/usage.h"
#include "src/device/model.h"

namespace tessera::cli {
namespace {

// A node that fits by its GPUs but not by CPU or memory has no score.
std::string ScoreText(double score) {
  if (!std::isfinite(score)) return "CPU or memory short";
  // Shows four digits, but no exponent. Values below 1e-6 only break ties, so they show as 0.
  if (std::abs(score) >= 1000) return fmt::format("{:.0f}", score);
  return fmt::format("{:.4g}", std::abs(score) < 1e-6 ? 0.0 : score);
}

std::string TermsText(const Candidate& candidate) {
  std::string text;
  for (const auto& [term, value] : candidate.terms) {
    if (value == 0) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", term, ScoreText(value));
  }
  return text;
}

std::string NoteOf(const Candidate& candidate) {
  return candidate.exclusion_reason.empty() ? "" : ": " + candidate.exclusion_reason;
}

bool HasShares(const ledger::PodEntry& pod) {
  return std::ranges::any_of(pod.assignment().containers, [](const auto& container) {
    return std::ranges::any_of(container.second,
                               [](const auto& share) { return share.compute != kWholeGpu; });
  });
}

class ExplanationWriter {
 public:
  ExplanationWriter(const Explanation& explanation, bool color, const Result<ClusterUses>* uses,
                    const std::vector<PodWarning>& warnings)
      : explanation_(explanation), uses_(uses), warnings_(warnings), output_(color) {}

  std::string Write() {
    const ledger::PodEntry& pod = explanation_.pod;
    const std::string name = "Pod " + pod.request.Text();
    switch (explanation_.finding) {
      case Finding::kEnded:
        output_.AddLine(name + " has ended: it no longer holds a GPU.");
        break;
      case Finding::kInvalidRequest:
        output_.AddLine(name + " gets no GPU: its request cannot be met anywhere.", Tone::kBad);
        output_.AddLine("  " + explanation_.invalid_reason);
        break;
      case Finding::kNoGpus:
        output_.AddLine(name + " requests no GPU: Tessera does not place it.");
        break;
      case Finding::kPlaced:
        WritePlaced(name);
        break;
      case Finding::kWaits:
        WriteWaits(name);
        break;
    }
    return output_.Take();
  }

 private:
  void WritePlaced(const std::string& name) {
    const ledger::PodEntry& pod = explanation_.pod;
    output_.AddLine(
        fmt::format("{} requests {} and is on node {}{}.", name, explanation_.request_text,
                    pod.node, pod.deleting ? ", terminating" : ""),
        Tone::kHead);
    if (!pod.problem().empty()) output_.AddLine("  " + pod.problem(), Tone::kBad);
    if (pod.guessed()) {
      output_.AddLine(
          "  It bypassed the scheduler, so its GPUs are unknown. The GPUs below are set aside "
          "until the node's agent reports the actual ones.");
    }
    WriteDevices();
    WriteUsage();
    WriteWarnings();
    WriteCandidates(fmt::format("Current scores of nodes by policy {}, without this pod:",
                                explanation_.policy));
    WriteQuota();
  }

  void WriteWaits(const std::string& name) {
    output_.AddLine(fmt::format("{} requests {} and waits.", name, explanation_.request_text),
                    Tone::kHead);
    for (const std::string& gate : explanation_.gates) {
      output_.AddLine(
          fmt::format("  Scheduling gate {} holds it back: no node is chosen until the gate is "
                      "removed.",
                      gate));
    }
    if (!explanation_.nominated_node.empty()) {
      output_.AddLine(fmt::format(
          "  kube-scheduler is placing it on node {}, where tessera-scheduler holds GPUs "
          "for it: it waits for other pods of its group, for volumes, or for evicted "
          "pods to end.",
          explanation_.nominated_node));
    }
    if (explanation_.gpu_node_count == 0) {
      output_.AddLine("  No node has GPUs: see \"tessera nodes\".", Tone::kBad);
      return;
    }
    WriteRejections();
    WriteLeftOut();
    if (explanation_.fitting_count > 0) {
      WriteCandidates(
          fmt::format("{} node{} with room for its GPUs. If it still waits, see kube-scheduler's "
                      "reasons (CPU, memory, volumes, affinity to pods): kubectl describe pod.",
                      explanation_.fitting_count, Plural(explanation_.fitting_count)));
    } else {
      WriteNearest();
    }
    WriteWarnings();
    WriteQuota();
  }

  // A pod over its quota waits for the quota alone, even if nodes have free GPUs.
  void WriteRejections() {
    const std::string quota = fmt::format("{}", fmt::join(explanation_.quota_rejections, "; "));
    if (explanation_.over_quota) {
      output_.AddLine("  Its quota does not allow it on any node: " + quota + ".", Tone::kBad);
    }
    output_.AddLine("  " + explanation_.summary + ".");
    if (explanation_.rejected_by_quota > 0 && !explanation_.over_quota) {
      output_.AddLine(
          fmt::format("  The quota rejects {} node{} with room: {}", explanation_.rejected_by_quota,
                      Plural(explanation_.rejected_by_quota), quota),
          Tone::kBad);
    }
    for (const std::string& reason : explanation_.other_reasons) {
      output_.AddLine("  A node with room does not take it: " + reason, Tone::kBad);
    }
  }

  void WriteLeftOut() {
    for (const auto& [reason, nodes] : explanation_.left_out) {
      constexpr size_t kMaxNamedNodes = 5;
      std::string names = fmt::format(
          "{}",
          fmt::join(nodes.begin(), nodes.begin() + std::min(nodes.size(), kMaxNamedNodes), ", "));
      if (nodes.size() > kMaxNamedNodes) names += ", …";
      output_.AddLine(fmt::format("  kube-scheduler leaves out {} node{} with room ({}): {}.",
                                  nodes.size(), Plural(nodes.size()), names, reason),
                      Tone::kBad);
    }
  }

  void WriteDevices() {
    TextTable table{{"CONTAINER", "GPU", "MODEL", "SHARE", "UUID"}};
    for (const auto& [container, shares] : explanation_.pod.assignment().containers) {
      for (const device::DeviceShare& share : shares) {
        const auto same = [&](const DeviceView& device) { return device.uuid == share.uuid; };
        const auto device = std::ranges::find_if(explanation_.devices, same);
        const bool known = device != explanation_.devices.end() && device->gpu != nullptr;
        table.rows.push_back({container, known ? device->name : "-",
                              known ? device::ShortModel(device->gpu->model) : "-",
                              share.compute == kWholeGpu
                                  ? "whole"
                                  : fmt::format("{} GPU, {}", GpuCountText(share.compute.count()),
                                                MemoryText(share.memory)),
                              share.uuid});
      }
    }
    if (table.rows.empty()) return;
    output_.AddEmptyLine();
    output_.AddTable(table, 2);
  }

  void WriteUsage() {
    if (uses_ == nullptr || !HasShares(explanation_.pod)) return;
    const auto problem = UsageProblem(*uses_);
    if (!problem.ok()) {
      output_.AddEmptyLine();
      output_.AddLine("The usage of its shares is unknown: " + problem.message());
      return;
    }
    const std::vector<ContainerUse> uses =
        UsesOf(**uses_, explanation_.pod.request.ns, explanation_.pod.request.name);
    if (uses.empty()) return;
    output_.AddEmptyLine();
    output_.AddLine("Usage of its shares by container:");
    output_.AddTable(UsesTable(uses), 2);
    for (const ContainerUse& use : uses) {
      const std::string sentence = ShareSentence(use);
      if (!sentence.empty()) output_.AddLine("  " + sentence);
    }
    if (std::ranges::all_of(uses, &ContainerUse::limited)) return;
    output_.AddLine(
        fmt::format("  A container that is not limited can exceed its share: isolation was off on "
                    "node {} when it started (tessera-agent --limits-dir, node label {}), or its "
                    "limits could not be set and limits.failOpen has its namespace.",
                    explanation_.pod.node, names::kLabelCgpuDisableIsolation));
  }

  void WriteWarnings() {
    if (warnings_.empty()) return;
    output_.AddEmptyLine();
    output_.AddLine("Warnings (Events of the last hour):");
    for (const PodWarning& warning : warnings_) {
      output_.AddLine(
          fmt::format("  {} {}: {}{}", warning.at, warning.reason, warning.message,
                      warning.count > 1 ? fmt::format(" ({} times)", warning.count) : ""),
          Tone::kBad);
    }
  }

  void WriteCandidates(const std::string& heading) {
    if (explanation_.candidates.empty()) return;
    output_.AddEmptyLine();
    output_.AddLine(heading);
    TextTable table{{"RANK", "NODE", "SCORE", "MADE OF"}};
    for (const Candidate& candidate : explanation_.candidates) {
      const bool here = candidate.node == explanation_.pod.node;
      table.rows.push_back({fmt::format("{}/{}", candidate.rank, explanation_.fitting_count),
                            Cell(candidate.node + (here ? " (here" + NoteOf(candidate) + ")" : ""),
                                 here ? Tone::kGood : Tone::kPlain),
                            ScoreText(candidate.score), TermsText(candidate)});
    }
    output_.AddTable(table, 2);
  }

  void WriteNearest() {
    if (explanation_.nearest.empty()) return;
    output_.AddEmptyLine();
    output_.AddLine("Nodes closest to having room:");
    for (const Misfit& misfit : explanation_.nearest) {
      output_.AddLine(fmt::format("  {}: {}", misfit.node, misfit.reason));
      TextTable table{{"GPU", "WHY NOT"}};
      for (const auto& [gpu, why] : misfit.gpus) {
        table.rows.push_back({gpu, why.empty() ? Cell("fits", Tone::kGood) : Cell(why)});
      }
      if (!table.rows.empty()) output_.AddTable(table, 4);
    }
  }

  void WriteQuota() {
    if (explanation_.quota.empty()) return;
    output_.AddEmptyLine();
    output_.AddLine(
        fmt::format("Quota of namespace {}, without this pod:", explanation_.pod.request.ns));
    output_.AddTable(QuotaTable(explanation_.quota), 2);
  }

  const Explanation& explanation_;
  const Result<ClusterUses>* const uses_;
  const std::vector<PodWarning>& warnings_;
  TextOutput output_;
};

// By Finding.
constexpr std::string_view kFindingIds[] = {"ended", "no-gpus", "unreadable", "placed", "waits"};
static_assert(std::size(kFindingIds) == size_t(Finding::kWaits) + 1);

Json JsonOfCandidates(const Explanation& explanation) {
  Json list = Json::MakeArray();
  for (const Candidate& candidate : explanation.candidates) {
    Json terms = Json::MakeObject();
    for (const auto& [term, value] : candidate.terms) {
      if (std::isfinite(value)) terms.Set(term, Json::NumberText(fmt::format("{:.9g}", value)));
    }
    Json json = Json::MakeObject(
        {{"node", Json::String(candidate.node)}, {"rank", JsonOf(candidate.rank)}});
    if (std::isfinite(candidate.score)) {
      json.Set("score", Json::NumberText(fmt::format("{:.9g}", candidate.score)));
    }
    json.Set("terms", std::move(terms));
    list.Append(std::move(json));
  }
  return list;
}

Json JsonOfNearest(const Explanation& explanation) {
  Json list = Json::MakeArray();
  for (const Misfit& misfit : explanation.nearest) {
    Json gpus = Json::MakeArray();
    for (const auto& [gpu, why] : misfit.gpus) {
      gpus.Append(Json::MakeObject({{"gpu", Json::String(gpu)}, {"reason", Json::String(why)}}));
    }
    list.Append(Json::MakeObject({{"node", Json::String(misfit.node)},
                                  {"reason", Json::String(misfit.reason)},
                                  {"gpus", std::move(gpus)}}));
  }
  return list;
}

Json JsonOfExplanation(const ClusterView& view, const Explanation& explanation) {
  Json json = Json::MakeObject(
      {{"finding", Json::String(kFindingIds[static_cast<size_t>(explanation.finding)])},
       {"pod", JsonOfPod(view, explanation.pod)},
       {"asks", Json::String(explanation.request_text)},
       {"policy", Json::String(explanation.policy)}});
  if (!explanation.invalid_reason.empty())
    json.Set("problem", Json::String(explanation.invalid_reason));
  if (!explanation.gates.empty()) json.Set("gates", Json::Strings(explanation.gates));
  if (!explanation.nominated_node.empty()) {
    json.Set("nominatedNode", Json::String(explanation.nominated_node));
  }
  if (!explanation.summary.empty()) {
    json.Set("summary", Json::String(explanation.summary));
    json.Set("nodes",
             Json::MakeObject({{"withGpus", JsonOf(explanation.gpu_node_count)},
                               {"fitting", JsonOf(explanation.fitting_count)},
                               {"refusedByQuota", JsonOf(explanation.rejected_by_quota)}}));
    json.Set("overQuota", Json::Bool(explanation.over_quota));
    json.Set("candidates", JsonOfCandidates(explanation));
  }
  if (!explanation.left_out.empty()) {
    Json left_out = Json::MakeArray();
    for (const auto& [reason, nodes] : explanation.left_out) {
      left_out.Append(
          Json::MakeObject({{"reason", Json::String(reason)}, {"nodes", Json::Strings(nodes)}}));
    }
    json.Set("leftOut", std::move(left_out));
  }
  if (!explanation.nearest.empty()) json.Set("nearest", JsonOfNearest(explanation));
  if (!explanation.quota_rejections.empty()) {
    json.Set("quotaRefusals", Json::Strings({explanation.quota_rejections.begin(),
                                             explanation.quota_rejections.end()}));
  }
  Json quota = Json::MakeArray();
  for (const QuotaLine& line : explanation.quota) quota.Append(JsonOfLine(line));
  if (!explanation.quota.empty()) json.Set("quota", std::move(quota));
  return json;
}

}  // namespace

Result<std::string> Explain(ledger::ClusterLedger& ledger, const kube::PodObject& pod,
                            const Style& style, const Result<ClusterUses>* uses,
                            const std::vector<PodWarning>& warnings) {
  const Explanation explanation = ExplanationOf(ledger, pod);
  if (!style.shows_cells()) {
    Json json = JsonOfExplanation(ClusterView(ledger), explanation);
    if (uses != nullptr && explanation.finding == Finding::kPlaced && UsageProblem(*uses).ok()) {
      Json list = Json::MakeArray();
      for (const ContainerUse& use :
           UsesOf(**uses, explanation.pod.request.ns, explanation.pod.request.name))
        list.Append(JsonOfUse(use));
      json.Set("uses", std::move(list));
    }
    if (!warnings.empty()) {
      Json list = Json::MakeArray();
      for (const PodWarning& warning : warnings) list.Append(JsonOf(warning));
      json.Set("warnings", std::move(list));
    }
    return PrintDocument(json, "", style);
  }
  return ExplanationWriter(explanation, style.color, uses, warnings).Write();
}

}  // namespace tessera::cli
