// SPDX-License-Identifier: Apache-2.0
// A node as the default policy would find it after a demand was placed there: on which GPUs, and
// what would be idle in the end by the closed form (waste_model.h).
//
// Threads: one. Cost: a pass over the GPUs of one node. Private to this room.
#pragma once

#include "src/placement/cluster.h"
#include "src/placement/policies/node_summaries.h"
#include "src/placement/policies/plain_ask.h"
#include "src/placement/policies/waste_model.h"

namespace tessera::placement {

struct NodeAfter {
  float closed = 0;  // W by the closed form; 0 without a model
  NodeKey key;
  Pick pick;
  int idle_taken = 0;  // GPUs
  bool fits = false;

  // `model` may be null: before the first mix is learnt, a share goes where it is tightest.
  static NodeAfter Of(const NodeView& view, const NodeSummary& node, const Demand& demand,
                      const WasteModel* model);
};

// W by the closed form, of the node without what the demand takes of CPU and memory. REQUIRES:
// `sums` are without what it takes of GPUs.
float ClosedAfter(const NodeSummary& node, const Demand& demand, const WasteSums& sums,
                  const WasteModel& model);

// Of a plain share on a plain node: the slack of the GPU where it leaves the least waste, and that
// waste; -1 where it fits on none.
int16_t BestSlack(const NodeSummary& node, const PlainAsk& ask, const WasteModel* model,
                  float* closed);

}  // namespace tessera::placement
