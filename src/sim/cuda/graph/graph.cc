// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/graph/graph.h"

#include <algorithm>
#include <set>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

// True: `predicate` holds for the graph or for a graph in it, which is the graph of a child graph
// node or a body of a conditional node.
bool AnyGraph(const GraphTag& graph, const std::function<bool(const GraphTag&)>& predicate) {
  return predicate(graph) || std::ranges::any_of(graph.nodes, [&](const auto& node) {
           return std::ranges::any_of(
               node->children, [&](const auto& child) { return AnyGraph(*child, predicate); });
         });
}

bool AnyNode(const GraphTag& graph, const std::function<bool(const GraphNodeTag&)>& predicate) {
  return AnyGraph(graph, [&](const GraphTag& candidate) {
    return std::ranges::any_of(candidate.nodes, [&](const auto& node) { return predicate(*node); });
  });
}

}  // namespace

Capture* Graphs::CaptureOf(StreamTag* stream) {
  for (const auto& [id, capture] : captures_) {
    if (capture->streams.contains(stream)) return capture.get();
  }
  return nullptr;
}

Capture* Graphs::FindCapture(uint64_t id) {
  const auto found = captures_.find(id);
  return found == captures_.end() ? nullptr : found->second.get();
}

Capture* Graphs::BeginCapture(StreamTag* stream, uint64_t id, CaptureMode mode, GraphTag* graph) {
  auto capture = std::make_unique<Capture>();
  capture->id = id;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin_stream = stream;
  if (graph == nullptr) capture->owned_graph = std::make_unique<GraphTag>();
  capture->graph = graph == nullptr ? capture->owned_graph.get() : graph;
  capture->streams[stream];
  return (captures_[id] = std::move(capture)).get();
}

Result Graphs::AddTo(Capture* capture, StreamTag* stream, GraphNodeType type, Command command,
                     EventTag* event) {
  if (capture->invalid) return Result::kStreamCaptureInvalidated;
  auto node = std::make_unique<GraphNodeTag>();
  node->graph = capture->graph;
  node->type = type;
  node->command = std::move(command);
  node->event = event;
  node->dependencies = capture->streams[stream];
  capture->streams[stream] = {node.get()};
  capture->graph->nodes.push_back(std::move(node));
  return Result::kSuccess;
}

Result Graphs::AddMemory(Capture* capture, StreamTag* stream, GraphNodeType type,
                         std::shared_ptr<GraphMemory> memory) {
  const Result result = AddTo(capture, stream, type, {});
  if (result == Result::kSuccess) capture->graph->nodes.back()->memory = std::move(memory);
  return result;
}

Result Graphs::AddNode(GraphNodeTag** node, GraphTag* graph, GraphNodeTag* const* from,
                       size_t count, std::unique_ptr<GraphNodeTag> created) {
  if (node == nullptr || !IsGraph(graph) || (count != 0 && from == nullptr)) {
    return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!IsNodeOf(graph, from[i])) return Result::kInvalidValue;
    created->dependencies.push_back(from[i]);
  }
  created->graph = graph;
  *node = created.get();
  graph->nodes.push_back(std::move(created));
  return Result::kSuccess;
}

Result Graphs::EndCapture(Capture* capture, GraphTag** graph) {
  Result result = capture->invalid ? Result::kStreamCaptureInvalidated : Result::kSuccess;
  std::set<GraphNodeTag*> joined;
  std::vector<GraphNodeTag*> to_visit = capture->streams[capture->origin_stream];
  while (!to_visit.empty()) {
    GraphNodeTag* node = to_visit.back();
    to_visit.pop_back();
    if (joined.insert(node).second)
      to_visit.insert(to_visit.end(), node->dependencies.begin(), node->dependencies.end());
  }
  for (const auto& [stream, last] : capture->streams) {
    const auto is_joined = [&](GraphNodeTag* node) { return joined.contains(node); };
    if (result == Result::kSuccess && !std::ranges::all_of(last, is_joined)) {
      result = Result::kStreamCaptureUnjoined;
    }
  }
  *graph = nullptr;
  if (result == Result::kSuccess) {
    *graph =
        capture->owned_graph == nullptr ? capture->graph : Add(std::move(capture->owned_graph));
  }
  captures_.erase(capture->id);
  return result;
}

bool Graphs::IsCapturing(const GraphTag* graph) const {
  return std::ranges::any_of(captures_,
                             [graph](const auto& item) { return item.second->graph == graph; });
}

bool Graphs::Invalidate(StreamTag* stream) {
  Capture* capture = CaptureOf(stream);
  if (capture != nullptr) capture->invalid = true;
  return capture != nullptr;
}

bool Graphs::InvalidateByUnsafeCall() {
  const CaptureMode thread_mode = ThreadCaptureMode();
  bool forbidden = false;
  for (const auto& [id, capture] : captures_) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids =
        own ? capture->mode != CaptureMode::kRelaxed && thread_mode != CaptureMode::kRelaxed
            : capture->mode == CaptureMode::kGlobal && thread_mode == CaptureMode::kGlobal;
    if (!forbids) continue;
    capture->invalid = true;
    forbidden = true;
  }
  return forbidden;
}

void Graphs::RemoveStream(StreamTag* stream) {
  if (!Invalidate(stream)) return;
  Capture* capture = CaptureOf(stream);
  if (capture->origin_stream == stream)
    captures_.erase(capture->id);
  else
    capture->streams.erase(stream);
}

bool Graphs::IsGraph(GraphTag* graph) const {
  return AnyKnownGraph([graph](const GraphTag& candidate) { return &candidate == graph; });
}

bool Graphs::IsNode(GraphNodeTag* node) const {
  return AnyKnownGraph([node](const GraphTag& graph) {
    return std::ranges::any_of(graph.nodes,
                               [&](const auto& candidate) { return candidate.get() == node; });
  });
}

bool Graphs::IsNodeOf(const GraphTag* graph, GraphNodeTag* node) const {
  return IsNode(node) && node->graph == graph;
}

const GraphTag* Graphs::OwnerOf(ConditionalHandle handle, const GraphTag* graph) const {
  const GraphTag* owner = nullptr;
  (void)AnyKnownGraph([&](const GraphTag& candidate) {
    const bool has =
        candidate.conditions.contains(handle) &&
        AnyGraph(candidate, [graph](const GraphTag& other) { return &other == graph; });
    if (has) owner = &candidate;
    return has;
  });
  return owner;
}

bool Graphs::AnyKnownGraph(const std::function<bool(const GraphTag&)>& predicate) const {
  return std::ranges::any_of(graphs_,
                             [&](const auto& item) { return AnyGraph(*item.second, predicate); }) ||
         std::ranges::any_of(
             captures_, [&](const auto& item) { return AnyGraph(*item.second->graph, predicate); });
}

GraphTag* Graphs::Add(std::unique_ptr<GraphTag> graph) {
  GraphTag* added = graph.get();
  graphs_[added] = std::move(graph);
  return added;
}

GraphExecTag* Graphs::Add(std::unique_ptr<GraphExecTag> exec) {
  GraphExecTag* added = exec.get();
  execs_[added] = std::move(exec);
  return added;
}

std::unique_ptr<GraphTag> Clone(const GraphTag& graph) {
  auto clone = std::make_unique<GraphTag>();
  clone->user_objects = graph.user_objects;
  clone->conditions = graph.conditions;
  std::map<const GraphNodeTag*, GraphNodeTag*> clones;
  for (const auto& node : graph.nodes) {
    auto copy = std::make_unique<GraphNodeTag>();
    copy->graph = clone.get();
    copy->type = node->type;
    copy->command = node->command;
    copy->parameters = node->parameters;
    copy->attributes = node->attributes;
    copy->enabled = node->enabled;
    copy->origin = node.get();
    copy->event = node->event;
    copy->memory = node->memory;
    copy->condition = node->condition;
    for (const auto& child : node->children) copy->children.push_back(Clone(*child));
    for (const GraphNodeTag* from : node->dependencies) copy->dependencies.push_back(clones[from]);
    clones[node.get()] = copy.get();
    clone->nodes.push_back(std::move(copy));
  }
  return clone;
}

void CopyOrigins(const GraphTag& graph, GraphTag* clone) {
  for (size_t i = 0; i < clone->nodes.size() && i < graph.nodes.size(); ++i) {
    clone->nodes[i]->origin = graph.nodes[i]->origin;
    const auto &from = graph.nodes[i]->children, &to = clone->nodes[i]->children;
    for (size_t k = 0; k < from.size() && k < to.size(); ++k) CopyOrigins(*from[k], to[k].get());
  }
}

GraphNodeTag* FindClone(const GraphTag& graph, const GraphNodeTag* origin) {
  for (const auto& node : graph.nodes) {
    if (node->origin == origin) return node.get();
    for (const auto& child : node->children) {
      if (GraphNodeTag* found = FindClone(*child, origin); found != nullptr) return found;
    }
  }
  return nullptr;
}

GraphNodeTag* FindCloneToChange(GraphExecTag* exec, const GraphNodeTag* origin) {
  if (exec->graph.use_count() > 1) {
    std::unique_ptr<GraphTag> clone = Clone(*exec->graph);
    CopyOrigins(*exec->graph, clone.get());
    exec->graph = std::move(clone);
  }
  return FindClone(*exec->graph, origin);
}

bool HasUserObjects(const GraphTag& graph) {
  return AnyGraph(graph, [](const GraphTag& candidate) { return !candidate.user_objects.empty(); });
}

bool HasConditionalNode(const GraphTag& graph, ConditionalHandle handle) {
  return AnyNode(graph, [handle](const GraphNodeTag& node) {
    return node.type == GraphNodeType::kConditional && node.condition.handle == handle;
  });
}

bool HasConditionalNodes(const GraphTag& graph) {
  return AnyNode(graph,
                 [](const GraphNodeTag& node) { return node.type == GraphNodeType::kConditional; });
}

std::unique_ptr<GraphNodeTag> NewNode(GraphNodeType type, Command command) {
  auto node = std::make_unique<GraphNodeTag>();
  node->type = type;
  node->command = std::move(command);
  return node;
}

bool GraphTag::has_memory() const {
  return std::ranges::any_of(nodes, [](const auto& node) { return node->memory != nullptr; });
}

}  // namespace tessera::cuda
