// SPDX-License-Identifier: Apache-2.0
#include "src/placement/policies/node_after.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

// A plain share on the GPU that leaves the least waste by the closed form.
NodeAfter ShareAfter(const NodeView& view, const NodeSummary& node, const Demand& demand,
                     const WasteModel* model) {
  const GpuAsk& ask = demand.asks[0];
  NodeAfter best;
  best.closed = std::numeric_limits<float>::infinity();
  int chosen = -1, left = 0;
  for (size_t i = 0; i < view.gpus.size(); ++i) {
    const GpuState& gpu = view.gpus[i];
    if (!Fits(gpu, ask, demand)) continue;
    if (chosen >= 0 && gpu.slack == view.gpus[chosen].slack &&
        gpu.model == view.gpus[chosen].model && gpu.total_bytes == view.gpus[chosen].total_bytes) {
      continue;
    }
    const int rest = std::max(gpu.slack - SlackOf(gpu, ask), 0);
    float waste = gpu.slack;
    if (model) {
      WasteSums sums = node.sums;
      model->Add(gpu.model, gpu.slack, -1, &sums);
      model->Add(gpu.model, rest, 1, &sums);
      waste = ClosedAfter(node, demand, sums, *model);
    }
    if (waste >= best.closed) continue;
    best.closed = waste;
    chosen = static_cast<int>(i);
    left = rest;
  }
  if (chosen < 0) return {};
  best.fits = true;
  best.pick.masks[0] = uint64_t{1} << chosen;
  best.idle_taken = view.gpus[chosen].slack == 1000;
  best.key = node.key.With(view.gpus[chosen].slack, static_cast<int16_t>(left),
                           node.cpu - demand.cpu_milli, node.memory - demand.memory.count());
  return best;
}

}  // namespace

float ClosedAfter(const NodeSummary& node, const Demand& demand, const WasteSums& sums,
                  const WasteModel& model) {
  return model.ClosedForm(sums, node.cpu - demand.cpu_milli, node.memory - demand.memory.count());
}

int16_t BestSlack(const NodeSummary& node, const PlainAsk& ask, const WasteModel* model,
                  float* closed) {
  *closed = std::numeric_limits<float>::infinity();
  int16_t best = -1, tried = -1;
  for (int i = 0; i < node.key.gpus; ++i) {
    const int16_t slack = node.key.slack[i];
    if (slack < ask.milli || slack == tried) continue;
    tried = slack;
    float waste = slack;  // without a model: the tightest
    if (model) {
      WasteSums sums = node.sums;
      model->Add(node.model, slack, -1, &sums);
      model->Add(node.model, slack - ask.milli, 1, &sums);
      waste = ClosedAfter(node, ask.demand, sums, *model);
    }
    if (waste >= *closed) continue;
    *closed = waste;
    best = slack;
  }
  return best;
}

NodeAfter NodeAfter::Of(const NodeView& view, const NodeSummary& node, const Demand& demand,
                        const WasteModel* model) {
  if (!HostFits(*view.state, demand)) return {};
  if (demand.asks.size() == 1 && demand.asks[0].count == 1 && !demand.asks[0].whole()) {
    return ShareAfter(view, node, demand, model);
  }
  NodeAfter after;
  if (!PickTightest(view, demand, &after.pick)) return {};
  after.fits = true;
  std::array<int16_t, kMaxGpusPerNode> slack;
  SlackAfter(view, demand, after.pick, slack.data());
  WasteSums sums = node.sums;
  for (uint64_t left = after.pick.all(); left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    slack[i] = std::max<int16_t>(slack[i], 0);
    after.idle_taken += view.gpus[i].slack == 1000;
    if (!model) continue;
    model->Add(view.gpus[i].model, view.gpus[i].slack, -1, &sums);
    model->Add(view.gpus[i].model, slack[i], 1, &sums);
  }
  if (model) after.closed = ClosedAfter(node, demand, sums, *model);
  after.key = NodeKey::Of(view->model, node.cpu - demand.cpu_milli,
                          node.memory - demand.memory.count(), slack.data(), view.gpus.size());
  return after;
}

}  // namespace tessera::placement
