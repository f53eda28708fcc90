// SPDX-License-Identifier: Apache-2.0
// The driver's functions that change nodes of an executable graph. Later launches may take a
// different time, so the limiter forgets the price of the graph. Wait nodes count, too, because the
// time of a launch includes the waits of its nodes.
#include "src/limiter/compute/throttle.h"
#include "src/limiter/loader/driver.h"
#include "src/limiter/process/process.h"

namespace tessera::cuda {
namespace {

using limiter::driver;
using limiter::Process;
using limiter::Throttle;

Result ForgetIfChanged(GraphExec exec, Result result) {
  if (result == Result::kSuccess && Process::Get().IsLimiting()) Throttle::Get().ForgetGraph(exec);
  return result;
}

}  // namespace

#define CHANGE(name, parameters, arguments) \
  LIMITER_EXPORT Result name parameters { return ForgetIfChanged(exec, driver.name arguments); }
CHANGE(cuGraphExecUpdate, (GraphExec exec, Graph graph, GraphNode* error_node, int* result),
       (exec, graph, error_node, result))
CHANGE(cuGraphExecUpdate_v2, (GraphExec exec, Graph graph, GraphUpdateResult* result),
       (exec, graph, result))
CHANGE(cuGraphExecNodeSetParams, (GraphExec exec, GraphNode node, GraphNodeParameters* parameters),
       (exec, node, parameters))
CHANGE(cuGraphExecKernelNodeSetParams,
       (GraphExec exec, GraphNode node, const KernelNodeParameters* parameters),
       (exec, node, parameters))
CHANGE(cuGraphExecKernelNodeSetParams_v2,
       (GraphExec exec, GraphNode node, const KernelNodeParameters* parameters),
       (exec, node, parameters))
CHANGE(cuGraphExecMemcpyNodeSetParams,
       (GraphExec exec, GraphNode node, const Memcpy3D* copy, Context context),
       (exec, node, copy, context))
CHANGE(cuGraphExecMemsetNodeSetParams,
       (GraphExec exec, GraphNode node, const MemsetNodeParameters* parameters, Context context),
       (exec, node, parameters, context))
CHANGE(cuGraphExecHostNodeSetParams,
       (GraphExec exec, GraphNode node, const HostNodeParameters* parameters),
       (exec, node, parameters))
CHANGE(cuGraphExecChildGraphNodeSetParams, (GraphExec exec, GraphNode node, Graph child),
       (exec, node, child))
CHANGE(cuGraphExecEventWaitNodeSetEvent, (GraphExec exec, GraphNode node, Event event),
       (exec, node, event))
CHANGE(cuGraphExecExternalSemaphoresWaitNodeSetParams,
       (GraphExec exec, GraphNode node, const SemaphoresWaitNodeParameters* parameters),
       (exec, node, parameters))
CHANGE(cuGraphExecBatchMemOpNodeSetParams,
       (GraphExec exec, GraphNode node, const MemOpsNodeParameters* parameters),
       (exec, node, parameters))
CHANGE(cuGraphNodeSetEnabled, (GraphExec exec, GraphNode node, unsigned enabled),
       (exec, node, enabled))
#undef CHANGE

}  // namespace tessera::cuda
