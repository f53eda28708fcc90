// SPDX-License-Identifier: Apache-2.0
// Creating, instantiating and launching graphs.
#include <algorithm>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

// `reason` is a CUgraphInstantiateResult.
Result Instantiate(GraphExec* exec, Graph graph, uint64_t flags, int* reason) {
  CUDA_ENTER(ContextCall, call);
  *reason = kInstantiateError;
  if (exec == nullptr || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  if (const int found = CheckConditionalNodes(*graph); found != kInstantiateSuccess) {
    *reason = found;
    return found == kInstantiateHandleUnused ? Result::kInvalidValue : Result::kNotSupported;
  }
  auto created = std::make_unique<GraphExecTag>();
  Result result = call->graph_pools().Instantiate(*graph, &created->backing);
  if (result == Result::kSuccess && (flags & kInstantiateUpload) != 0) {
    result = call->graph_pools().AllocateMemory(created->backing);
  }
  if (result != Result::kSuccess) return result;
  created->flags = flags;
  created->graph = Clone(*graph);
  call->user_objects().Retain(*created->graph);
  *exec = call->graphs().Add(std::move(created));
  *reason = kInstantiateSuccess;
  return Result::kSuccess;
}
Result Instantiate(GraphExec* exec, Graph graph, uint64_t flags) {
  int reason = 0;
  return Instantiate(exec, graph, flags, &reason);
}

// Pushes the nodes of a graph. Adjacent nodes that need only the GPU become one command.
class Launcher {
 public:
  Launcher(ContextCall* call, StreamTag* stream) : call_(*call), stream_(stream) {}

  Result Add(const GraphTag& graph) {
    for (const auto& node : graph.nodes) {
      const Result result = Add(*node);
      if (result != Result::kSuccess) return result;
    }
    return Result::kSuccess;
  }
  Result Flush() {
    if (nodes_ == 0) return Result::kSuccess;
    auto effects = std::make_shared<std::vector<std::function<void()>>>(std::move(effects_));
    if (!effects->empty()) {
      merged_.effect = [effects] {
        for (const auto& effect : *effects) effect();
      };
    }
    nodes_ = 0;
    effects_.clear();
    Command command = std::move(merged_);
    merged_ = {.share = 1};
    return call_.Push(stream_, std::move(command));
  }

 private:
  Result Add(const GraphNodeTag& node) {
    if (!node.enabled) return Result::kSuccess;
    if (node.type == GraphNodeType::kGraph) return Add(*node.children[0]);
    if (node.type == GraphNodeType::kConditional) {
      const size_t body = node.condition.body();
      return body < node.children.size() ? Add(*node.children[body]) : Result::kSuccess;
    }
    if (node.type == GraphNodeType::kHost) {
      const Result result = Flush();
      return result == Result::kSuccess ? call_.Push(stream_, node.command) : result;
    }
    if (node.type == GraphNodeType::kEventRecord) {
      const Result result = Flush();
      if (result == Result::kSuccess && call_->events().contains(node.event)) {
        node.event->ticket = call_->engine().Record(stream_);
      }
      return result;
    }
    if (node.type == GraphNodeType::kWaitEvent) return WaitFor(node.event);
    if (node.type == GraphNodeType::kEmpty || node.memory != nullptr) return Result::kSuccess;
    ++nodes_;
    merged_.remaining_ns += node.command.remaining_ns;
    merged_.share = std::max(merged_.share, node.command.share);
    if (node.command.error != Result::kSuccess) merged_.error = node.command.error;
    if (node.command.effect) effects_.push_back(node.command.effect);
    return Result::kSuccess;
  }

  Result WaitFor(EventTag* event) {
    const Result result = Flush();
    if (result != Result::kSuccess || !call_->events().contains(event)) return result;
    if (event->ticket == nullptr || event->ticket->reached) return result;
    return call_.Push(stream_, {.kind = Command::Kind::kWait, .ticket = event->ticket});
  }

  ContextCall& call_;
  StreamTag* const stream_;
  Command merged_{.share = 1};
  std::vector<std::function<void()>> effects_;
  int nodes_ = 0;
};

}  // namespace

CUDA_EXPORT Result cuGraphCreate(Graph* graph, unsigned flags) {
  CUDA_ENTER(Call, call);
  if (graph == nullptr || flags != 0) return Result::kInvalidValue;
  *graph = call->graphs().Add(std::make_unique<GraphTag>());
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphDestroy(Graph graph) {
  UserObjects::DeferredDestroyCalls deferred;
  CUDA_ENTER(Call, call);
  // A node owns the graph of a child node and a body.
  if (!call->graphs().IsOwnedByProgram(graph) || call->graphs().IsCapturing(graph)) {
    return Result::kInvalidValue;
  }
  call->user_objects().Release(*graph, &deferred);
  call->graphs().Destroy(graph);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphClone(Graph* clone, Graph graph) {
  CUDA_ENTER(Call, call);
  if (clone == nullptr || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  if (graph->has_memory() || HasConditionalNodes(*graph)) return Result::kNotSupported;
  *clone = call->graphs().Add(Clone(*graph));
  call->user_objects().Retain(**clone);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphInstantiate(GraphExec* exec, Graph graph, GraphNode*, char*, size_t) {
  return Instantiate(exec, graph, 0);
}
CUDA_EXPORT Result cuGraphInstantiate_v2(GraphExec* exec, Graph graph, GraphNode*, char*, size_t) {
  return Instantiate(exec, graph, 0);
}
CUDA_EXPORT Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph,
                                               unsigned long long flags) {
  return Instantiate(exec, graph, flags & ~uint64_t(kInstantiateUpload));
}
CUDA_EXPORT Result cuGraphInstantiateWithParams(GraphExec* exec, Graph graph,
                                                GraphInstantiateParameters* parameters) {
  if (parameters == nullptr) return Result::kInvalidValue;
  return Instantiate(exec, graph, parameters->flags, &parameters->result);
}
CUDA_PER_THREAD(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 3)

CUDA_EXPORT Result cuGraphExecDestroy(GraphExec exec) {
  UserObjects::DeferredDestroyCalls deferred;
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  // Running commands may need the objects.
  if (HasUserObjects(*exec->graph)) call.WaitForAll();
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  call->user_objects().Release(*exec->graph, &deferred);
  if (exec->backing != nullptr) call->graph_pools().EndInstance(exec->backing.get());
  call->graphs().Destroy(exec);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphUpload(GraphExec exec, Stream stream) {
  CUDA_ENTER(StreamCall, call, stream);
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  return call->graph_pools().AllocateMemory(exec->backing);
}
CUDA_PER_THREAD(cuGraphUpload_ptsz, cuGraphUpload, 2)

CUDA_EXPORT Result cuGraphLaunch(GraphExec exec, Stream stream) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = call->FindStream(call.context(), stream);
  if (found == nullptr) return Result::kInvalidHandle;
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  // The instance may be destroyed or updated while a launch waits until the queue has space.
  const std::shared_ptr<const GraphTag> graph = exec->graph;
  const std::shared_ptr<GraphBacking> backing = exec->backing;
  Result result = call->graph_pools().Launch(*graph, backing, exec->auto_free());
  if (result != Result::kSuccess) return result;
  Launcher launcher(&call, found);
  result = launcher.Add(*graph);
  if (result == Result::kSuccess) result = launcher.Flush();
  if (backing != nullptr && result == Result::kSuccess) {
    backing->last_launch_end = call->engine().EndTicket(found);
  }
  return result;
}
CUDA_PER_THREAD(cuGraphLaunch_ptsz, cuGraphLaunch, 2)

}  // namespace tessera::cuda
