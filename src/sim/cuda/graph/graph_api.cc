// SPDX-License-Identifier: Apache-2.0
// The functions of graphs and of stream capture.
#include <algorithm>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kReplaceDependencies = 1;  // CUstreamUpdateCaptureDependencies_flags; 0: add
constexpr int kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2;

int StatusOf(const Capture* capture) {
  if (capture == nullptr) return kCaptureNone;
  return capture->invalid ? kCaptureInvalidated : kCaptureActive;
}

Result Instantiate(GraphExec* exec, Graph graph, uint64_t flags) {
  CUDA_ENTER(ContextCall, call);
  if (exec == nullptr || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  auto made = std::make_unique<GraphExecTag>();
  Result result = call->graph_pools().Instantiate(*graph, &made->backing);
  if (result == Result::kSuccess && (flags & kInstantiateUpload) != 0) {
    result = call->graph_pools().TakeMemory(made->backing);
  }
  if (result != Result::kSuccess) return result;
  made->auto_free = (flags & kInstantiateAutoFree) != 0;
  made->graph = Clone(*graph);
  call->user_objects().Retain(*made->graph);
  *exec = call->graphs().Keep(std::move(made));
  return Result::kSuccess;
}

bool HasUserObjects(const GraphTag& graph) {
  return !graph.user_objects.empty() || std::ranges::any_of(graph.nodes, [](const auto& node) {
    return node->child != nullptr && HasUserObjects(*node->child);
  });
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
      together_.effect = [effects] {
        for (const auto& effect : *effects) effect();
      };
    }
    nodes_ = 0;
    effects_.clear();
    Command command = std::move(together_);
    together_ = {.share = 1};
    return call_.Push(stream_, std::move(command));
  }

 private:
  Result Add(const GraphNodeTag& node) {
    if (node.child != nullptr) return Add(*node.child);
    if (node.type == GraphNodeType::kHost) {
      const Result result = Flush();
      return result == Result::kSuccess ? call_.Push(stream_, node.command) : result;
    }
    if (node.type == GraphNodeType::kEventRecord) {
      const Result result = Flush();
      if (call_->events().contains(node.event)) {
        node.event->ticket = call_->engine().Record(stream_);
      }
      return result;
    }
    if (node.type == GraphNodeType::kWaitEvent) return WaitFor(node.event);
    if (node.type == GraphNodeType::kEmpty || node.memory != nullptr) return Result::kSuccess;
    ++nodes_;
    together_.left_ns += node.command.left_ns;
    together_.share = std::max(together_.share, node.command.share);
    if (node.command.fails != Result::kSuccess) together_.fails = node.command.fails;
    if (node.command.effect) effects_.push_back(node.command.effect);
    return Result::kSuccess;
  }

  Result WaitFor(EventTag* event) {
    const Result result = Flush();
    if (result != Result::kSuccess || !call_->events().contains(event)) return result;
    if (event->ticket == nullptr || event->ticket->timed) return result;
    return call_.Push(stream_, {.kind = Command::Kind::kWait, .ticket = event->ticket});
  }

  ContextCall& call_;
  StreamTag* const stream_;
  Command together_{.share = 1};
  std::vector<std::function<void()>> effects_;
  int nodes_ = 0;
};

}  // namespace

CUDA_EXPORT Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = call->FindStream(call.context(), stream);
  if (found == nullptr) return Result::kInvalidHandle;
  if (mode < 0 || mode > 2) return Result::kInvalidValue;
  if (found->is_legacy()) return Result::kStreamCaptureUnsupported;
  if (call->graphs().CaptureOf(found) != nullptr) return Result::kInvalidValue;
  call->graphs().Begin(found, call->NextId());
  return Result::kSuccess;
}
CUDA_EXPORT Result cuStreamBeginCapture(Stream stream) {
  return cuStreamBeginCapture_v2(stream, 0);
}
CUDA_PER_THREAD(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2, 2)
CUDA_PER_THREAD(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, 1)

CUDA_EXPORT Result cuStreamEndCapture(Stream stream, Graph* graph) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = call->FindStream(call.context(), stream);
  if (found == nullptr) return Result::kInvalidHandle;
  Capture* capture = call->graphs().CaptureOf(found);
  if (capture == nullptr || graph == nullptr) return Result::kInvalidValue;
  if (capture->origin != found) return Result::kStreamCaptureUnmatched;
  std::unique_ptr<GraphTag> made;
  const Result result = call->graphs().End(capture, &made);
  *graph = result == Result::kSuccess ? call->graphs().Keep(std::move(made)) : nullptr;
  return result;
}
CUDA_PER_THREAD(cuStreamEndCapture_ptsz, cuStreamEndCapture, 2)

CUDA_EXPORT Result cuStreamIsCapturing(Stream stream, int* status) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = call->FindStream(call.context(), stream);
  if (found == nullptr) return Result::kInvalidHandle;
  return Put(status, StatusOf(call->graphs().CaptureOf(found)));
}
CUDA_PER_THREAD(cuStreamIsCapturing_ptsz, cuStreamIsCapturing, 2)

CUDA_EXPORT Result cuStreamGetCaptureInfo_v2(Stream stream, int* status, uint64_t* id, Graph* graph,
                                             const GraphNode** from, size_t* count) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = call->FindStream(call.context(), stream);
  if (found == nullptr) return Result::kInvalidHandle;
  Capture* capture = call->graphs().CaptureOf(found);
  if (capture == nullptr) return Put(status, kCaptureNone);
  const std::vector<GraphNodeTag*>& last = capture->streams[found];
  PutIf(id, capture->id);
  if (graph != nullptr) *graph = capture->graph.get();
  if (from != nullptr) *from = last.data();
  PutIf(count, last.size());
  return Put(status, StatusOf(capture));
}
CUDA_PER_THREAD(cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo_v2, 6)
// The simulation has no edge data.
CUDA_EXPORT Result cuStreamGetCaptureInfo_v3(Stream stream, int* status, uint64_t* id, Graph* graph,
                                             const GraphNode** from, const void** edges,
                                             size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, from, count);
}
CUDA_PER_THREAD(cuStreamGetCaptureInfo_v3_ptsz, cuStreamGetCaptureInfo_v3, 7)
CUDA_EXPORT Result cuStreamGetCaptureInfo(Stream stream, int* status, uint64_t* id) {
  return cuStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}
CUDA_PER_THREAD(cuStreamGetCaptureInfo_ptsz, cuStreamGetCaptureInfo, 3)

// Sets the dependencies of the next captured operation of the stream: `nodes`, and without
// kReplaceDependencies also the previous ones.
CUDA_EXPORT Result cuStreamUpdateCaptureDependencies(Stream stream, const GraphNode* nodes,
                                                     size_t count, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = call->FindStream(call.context(), stream);
  if (found == nullptr) return Result::kInvalidHandle;
  Capture* capture = call->graphs().CaptureOf(found);
  if (capture == nullptr || flags > kReplaceDependencies || (count != 0 && nodes == nullptr)) {
    return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    const bool known = call->graphs().IsNode(nodes[i]) && nodes[i]->graph == capture->graph.get();
    if (!known) return Result::kInvalidValue;
  }
  std::vector<GraphNodeTag*>& last = capture->streams[found];
  if (flags == kReplaceDependencies) last.clear();
  last.insert(last.end(), nodes, nodes + count);
  return Result::kSuccess;
}
CUDA_PER_THREAD(cuStreamUpdateCaptureDependencies_ptsz, cuStreamUpdateCaptureDependencies, 4)
CUDA_EXPORT Result cuStreamUpdateCaptureDependencies_v2(Stream stream, const GraphNode* nodes,
                                                        const void* edges, size_t count,
                                                        unsigned flags) {
  if (edges != nullptr) return Result::kNotSupported;
  return cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}
CUDA_PER_THREAD(cuStreamUpdateCaptureDependencies_v2_ptsz, cuStreamUpdateCaptureDependencies_v2, 5)

// The simulation allows all calls of other threads during a capture.
CUDA_EXPORT Result cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;
  if (mode == nullptr || *mode < 0 || *mode > 2) return Result::kInvalidValue;
  std::swap(*mode, current);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphCreate(Graph* graph, unsigned flags) {
  CUDA_ENTER(Call, call);
  if (graph == nullptr || flags != 0) return Result::kInvalidValue;
  *graph = call->graphs().Keep(std::make_unique<GraphTag>());
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphDestroy(Graph graph) {
  UserObjects::Ended ended;
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  call->user_objects().Release(*graph, &ended);
  call->graphs().Destroy(graph);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphClone(Graph* clone, Graph graph) {
  CUDA_ENTER(Call, call);
  if (clone == nullptr || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  if (graph->has_memory()) return Result::kNotSupported;
  *clone = call->graphs().Keep(Clone(*graph));
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
  const Result result = Instantiate(exec, graph, parameters->flags);
  parameters->result = result == Result::kSuccess ? 0 : 1;
  return result;
}
CUDA_PER_THREAD(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 3)

// Only a graph of the same shape can replace the old graph.
CUDA_EXPORT Result cuGraphExecUpdate_v2(GraphExec exec, Graph graph, GraphUpdateResult* update) {
  UserObjects::Ended ended;
  CUDA_ENTER(Call, call);
  if (update == nullptr || !call->graphs().IsExec(exec) || !call->graphs().IsGraph(graph)) {
    return Result::kInvalidValue;
  }
  const auto same = [](const auto& a, const auto& b) {
    return a->type == b->type && a->from.size() == b->from.size();
  };
  const bool fits = !exec->graph->has_memory() && !graph->has_memory() &&
                    std::ranges::equal(exec->graph->nodes, graph->nodes, same);
  *update = {.result = fits ? 0 : 1, .error_node = nullptr, .error_from_node = nullptr};
  if (!fits) return Result::kGraphExecUpdateFailure;
  std::unique_ptr<GraphTag> updated = Clone(*graph);
  CopyOrigins(*exec->graph, updated.get());
  call->user_objects().Retain(*updated);
  if (HasUserObjects(*exec->graph)) call.WaitForAll();
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  call->user_objects().Release(*exec->graph, &ended);
  exec->graph = std::move(updated);
  return Result::kSuccess;
}
CUDA_EXPORT Result cuGraphExecUpdate(GraphExec exec, Graph graph, GraphNode* error_node,
                                     int* result) {
  GraphUpdateResult update{};
  const Result updated = cuGraphExecUpdate_v2(exec, graph, &update);
  PutIf(error_node, update.error_node);
  PutIf(result, update.result);
  return updated;
}

CUDA_EXPORT Result cuGraphExecDestroy(GraphExec exec) {
  UserObjects::Ended ended;
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  // Running commands may need the objects.
  if (HasUserObjects(*exec->graph)) call.WaitForAll();
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  call->user_objects().Release(*exec->graph, &ended);
  if (exec->backing != nullptr) call->graph_pools().EndInstance(exec->backing.get());
  call->graphs().Destroy(exec);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphUpload(GraphExec exec, Stream stream) {
  CUDA_ENTER(ContextCall, call);
  if (call->FindStream(call.context(), stream) == nullptr) return Result::kInvalidHandle;
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  return call->graph_pools().TakeMemory(exec->backing);
}
CUDA_PER_THREAD(cuGraphUpload_ptsz, cuGraphUpload, 2)

CUDA_EXPORT Result cuGraphLaunch(GraphExec exec, Stream stream) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = call->FindStream(call.context(), stream);
  if (found == nullptr) return Result::kInvalidHandle;
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  // The instance may be destroyed or updated while a launch waits for room.
  const std::shared_ptr<const GraphTag> graph = exec->graph;
  const std::shared_ptr<GraphBacking> backing = exec->backing;
  Result result = call->graph_pools().Launch(*graph, backing, exec->auto_free);
  if (result != Result::kSuccess) return result;
  Launcher launcher(&call, found);
  result = launcher.Add(*graph);
  if (result == Result::kSuccess) result = launcher.Flush();
  if (backing != nullptr && result == Result::kSuccess) {
    backing->last = call->engine().Record(found);
  }
  return result;
}
CUDA_PER_THREAD(cuGraphLaunch_ptsz, cuGraphLaunch, 2)

}  // namespace tessera::cuda
