// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "api/names.h"
#include "src/cli/commands.h"
#include "src/cli/explanation.h"
#include "src/cli/json_of.h"
#include "src/cli/table.h"
#include "src/cli/text.h"
#include "src/cli/usage.h"
#include "src/device/model.h"

namespace tessera::cli {
namespace {

// A node that fits by its GPUs but not by CPU or memory has no score.
std::string ScoreText(double score) {
  if (!std::isfinite(score)) return "CPU or memory short";
  // Omits values that only break ties, and decimals of thousands.
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

bool HasShares(const ledger::PodEntry& pod) {
  return std::ranges::any_of(pod.assignment.containers, [](const auto& container) {
    return std::ranges::any_of(container.second,
                               [](const auto& share) { return share.compute != kWholeGpu; });
  });
}

std::vector<GpuUse> UsesOf(const ledger::PodEntry& pod, const ClusterUses& all) {
  std::vector<GpuUse> uses;
  for (const GpuUse& use : all.uses) {
    if (use.ns == pod.ask.ns && use.pod == pod.ask.name) uses.push_back(use);
  }
  return uses;
}

// Why the usage is unknown; OK if the agent of the node has answered.
Status UsageProblem(const Result<ClusterUses>& uses) {
  if (!uses.ok()) return uses.status();
  return uses->problems.empty() ? Status::Ok() : uses->problems.begin()->second;
}

class ExplanationWriter {
 public:
  ExplanationWriter(const Explanation& found, bool color, const Result<ClusterUses>* uses)
      : found_(found), uses_(uses), paper_(color) {}

  std::string Write() {
    const ledger::PodEntry& pod = found_.pod;
    const std::string name = "Pod " + pod.ask.Text();
    switch (found_.finding) {
      case Finding::kEnded:
        paper_.Line(name + " has ended: it no longer holds a GPU.");
        break;
      case Finding::kUnreadable:
        paper_.Line(name + " gets no GPU: its request cannot be met anywhere.", Tone::kBad);
        paper_.Line("  " + found_.unreadable);
        break;
      case Finding::kNoGpus:
        paper_.Line(name + " requests no GPU: Tessera does not place it.");
        break;
      case Finding::kPlaced:
        WritePlaced(name);
        break;
      case Finding::kWaits:
        WriteWaits(name);
        break;
    }
    return paper_.Take();
  }

 private:
  void WritePlaced(const std::string& name) {
    const ledger::PodEntry& pod = found_.pod;
    paper_.Line(fmt::format("{} requests {} and is on node {}{}.", name, found_.asks, pod.node,
                            pod.deleting ? ", terminating" : ""),
                Tone::kHead);
    if (!pod.problem.empty()) paper_.Line("  " + pod.problem, Tone::kBad);
    if (pod.guessed()) {
      paper_.Line(
          "  It bypassed the scheduler, so its GPUs are unknown; these are set aside until the "
          "node's agent reports them.");
    }
    WriteDevices();
    WriteUsage();
    WriteCandidates(
        fmt::format("Current scores of nodes by policy {}, without this pod:", found_.policy));
    WriteQuota();
  }

  void WriteWaits(const std::string& name) {
    paper_.Line(fmt::format("{} requests {} and waits.", name, found_.asks), Tone::kHead);
    for (const std::string& gate : found_.gates) {
      paper_.Line(
          fmt::format("  Scheduling gate {} holds it back: no node is chosen until the gate is "
                      "removed.",
                      gate));
    }
    if (!found_.nominated_node.empty()) {
      paper_.Line(
          fmt::format("  kube-scheduler is placing it on node {}, where the scheduler holds GPUs "
                      "for it: it waits for other pods of its group, for volumes, or for evicted "
                      "pods to end.",
                      found_.nominated_node));
    }
    if (found_.nodes == 0) {
      paper_.Line("  No node has GPUs: see \"tessera nodes\".", Tone::kBad);
      return;
    }
    paper_.Line("  " + found_.summary + ".");
    if (found_.refused_by_quota > 0) {
      paper_.Line(
          fmt::format("  The quota rejects {} node{} with room: {}", found_.refused_by_quota,
                      Plural(found_.refused_by_quota), fmt::join(found_.quota_refusals, "; ")),
          Tone::kBad);
    }
    if (found_.fitting > 0) {
      WriteCandidates(fmt::format(
          "{} node{} with room for its GPUs. If it still waits, see kube-scheduler's "
          "reasons (CPU, memory, taints, node selector, affinity): kubectl describe pod.",
          found_.fitting, Plural(found_.fitting)));
    } else {
      WriteNearest();
    }
    WriteQuota();
  }

  void WriteDevices() {
    Table table({"CONTAINER", "GPU", "MODEL", "SHARE", "UUID"});
    for (const auto& [container, shares] : found_.pod.assignment.containers) {
      for (const device::DeviceShare& share : shares) {
        const auto same = [&](const DeviceView& device) { return device.uuid == share.uuid; };
        const auto device = std::ranges::find_if(found_.devices, same);
        const bool known = device != found_.devices.end() && device->gpu != nullptr;
        table.Add({container, known ? device->name : "-",
                   known ? device::ShortModel(device->gpu->model) : "-",
                   share.compute == kWholeGpu
                       ? "whole"
                       : fmt::format("{} GPU, {}", GpuCountText(share.compute.count()),
                                     MemoryText(share.memory)),
                   share.uuid});
      }
    }
    if (table.empty()) return;
    paper_.Space();
    paper_.Add(table, 2);
  }

  void WriteUsage() {
    if (uses_ == nullptr || !HasShares(found_.pod)) return;
    const auto problem = UsageProblem(*uses_);
    if (!problem.ok()) {
      paper_.Space();
      paper_.Line("The usage of its shares is unknown: " + problem.message());
      return;
    }
    const std::vector<GpuUse> uses = UsesOf(found_.pod, **uses_);
    if (uses.empty()) return;
    paper_.Space();
    paper_.Line("Usage of its shares by container:");
    paper_.Add(UsesTable(uses), 2);
    for (const GpuUse& use : uses) {
      const std::string sentence = ShareSentence(use);
      if (!sentence.empty()) paper_.Line("  " + sentence);
    }
    if (std::ranges::all_of(uses, &GpuUse::limited)) return;
    paper_.Line(
        fmt::format("  A container that is not limited can exceed its share: isolation was off on "
                    "node {} when it started (tessera-agent --limits-dir, node label {}).",
                    found_.pod.node, names::kLabelCgpuDisableIsolation));
  }

  void WriteCandidates(const std::string& heading) {
    if (found_.candidates.empty()) return;
    paper_.Space();
    paper_.Line(heading);
    Table table({"RANK", "NODE", "SCORE", "MADE OF"});
    for (const Candidate& candidate : found_.candidates) {
      const bool here = candidate.node == found_.pod.node;
      table.Add({fmt::format("{}/{}", candidate.rank, found_.fitting),
                 Cell(candidate.node + candidate.note + (here ? " (here)" : ""),
                      here ? Tone::kGood : Tone::kPlain),
                 ScoreText(candidate.score), TermsText(candidate)});
    }
    paper_.Add(table, 2);
  }

  void WriteNearest() {
    if (found_.nearest.empty()) return;
    paper_.Space();
    paper_.Line("Nodes closest to having room:");
    for (const Misfit& misfit : found_.nearest) {
      paper_.Line(fmt::format("  {}: {}", misfit.node, misfit.reason));
      Table table({"GPU", "WHY NOT"});
      for (const auto& [gpu, why] : misfit.gpus) {
        table.Add({gpu, why.empty() ? Cell("fits", Tone::kGood) : Cell(why)});
      }
      if (!table.empty()) paper_.Add(table, 4);
    }
  }

  void WriteQuota() {
    if (found_.quota.empty()) return;
    paper_.Space();
    paper_.Line(fmt::format("Quota of namespace {}, without this pod:", found_.pod.ask.ns));
    paper_.Add(QuotaTable(found_.quota), 2);
  }

  const Explanation& found_;
  const Result<ClusterUses>* const uses_;
  Paper paper_;
};

std::string_view IdOf(Finding finding) {
  switch (finding) {
    case Finding::kEnded:
      return "ended";
    case Finding::kNoGpus:
      return "no-gpus";
    case Finding::kUnreadable:
      return "unreadable";
    case Finding::kPlaced:
      return "placed";
    case Finding::kWaits:
      return "waits";
  }
  return "";
}

Json JsonOfCandidates(const Explanation& found) {
  Json list = Json::MakeArray();
  for (const Candidate& candidate : found.candidates) {
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

Json JsonOfNearest(const Explanation& found) {
  Json list = Json::MakeArray();
  for (const Misfit& misfit : found.nearest) {
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

Json JsonOfExplanation(const View& view, const Explanation& found) {
  Json json = Json::MakeObject({{"finding", Json::String(IdOf(found.finding))},
                                {"pod", JsonOfPod(view, found.pod)},
                                {"asks", Json::String(found.asks)},
                                {"policy", Json::String(found.policy)}});
  if (!found.unreadable.empty()) json.Set("problem", Json::String(found.unreadable));
  if (!found.gates.empty()) json.Set("gates", Json::Strings(found.gates));
  if (!found.nominated_node.empty()) {
    json.Set("nominatedNode", Json::String(found.nominated_node));
  }
  if (!found.summary.empty()) {
    json.Set("summary", Json::String(found.summary));
    json.Set("nodes", Json::MakeObject({{"withGpus", JsonOf(found.nodes)},
                                        {"fitting", JsonOf(found.fitting)},
                                        {"refusedByQuota", JsonOf(found.refused_by_quota)}}));
    json.Set("candidates", JsonOfCandidates(found));
  }
  if (!found.nearest.empty()) json.Set("nearest", JsonOfNearest(found));
  if (!found.quota_refusals.empty()) {
    Json refusals = Json::MakeArray();
    for (const std::string& refusal : found.quota_refusals) refusals.Append(Json::String(refusal));
    json.Set("quotaRefusals", std::move(refusals));
  }
  Json quota = Json::MakeArray();
  for (const QuotaLine& line : found.quota) quota.Append(JsonOfLine(line));
  if (!found.quota.empty()) json.Set("quota", std::move(quota));
  return json;
}

}  // namespace

std::string Explain(ledger::ClusterLedger& ledger, const FactsOf& facts, const kube::PodObject& pod,
                    Style style, const Result<ClusterUses>* uses) {
  const Explanation found = ExplanationOf(ledger, facts, pod);
  if (style.for_machines()) {
    Json json = JsonOfExplanation(View(ledger, facts), found);
    if (uses != nullptr && found.finding == Finding::kPlaced && UsageProblem(*uses).ok()) {
      Json list = Json::MakeArray();
      for (const GpuUse& use : UsesOf(found.pod, **uses)) list.Append(JsonOfUse(use));
      json.Set("uses", std::move(list));
    }
    return Serialize(json, style);
  }
  return ExplanationWriter(found, style.color, uses).Write();
}

}  // namespace tessera::cli
