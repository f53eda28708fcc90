// SPDX-License-Identifier: Apache-2.0
// Graphs: commands with dependencies, made by hand or by capturing streams, and launched as one.
//
// The commands of a launched graph run one after the other, in an order that their dependencies
// allow. Threads: REQUIRES the driver's mutex.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "src/sim/cuda/engine.h"
#include "src/sim/cuda/graph_memory.h"

namespace tessera::cuda {

// The parameters of a kernel node, and copies of the values that they point at.
struct KernelNode {
  KernelNodeParameters parameters = {};
  std::vector<unsigned char> bytes;
  std::vector<void*> values;  // within `bytes`
  size_t size = 0;            // of `bytes`, for `extra` to point at
  void* extra[5] = {};
};

// What the program has said that a node does; nothing for nodes that are captured.
using NodeParameters = std::variant<std::monostate, std::shared_ptr<const KernelNode>, Memcpy3D,
                                    MemsetNodeParameters, HostNodeParameters>;

}  // namespace tessera::cuda

// Handles of the ABI point at these.
struct tessera::cuda::GraphNodeTag {
  GraphTag* graph = nullptr;
  GraphNodeType type = GraphNodeType::kEmpty;
  Command command;  // not of child graphs, empty nodes and event records
  NodeParameters parameters;
  EventTag* event = nullptr;            // kEventRecord, kWaitEvent
  std::unique_ptr<GraphTag> child;      // kGraph
  std::shared_ptr<GraphMemory> memory;  // kMemAlloc, kMemFree
  std::vector<GraphNodeTag*> from;      // what it comes after
  // The node that it was cloned from. The program names the nodes of an instance by those of the
  // graph that it was made of. It may be gone.
  const GraphNodeTag* origin = nullptr;
};

// Every node stands after those that it comes after.
struct tessera::cuda::GraphTag {
  std::vector<std::unique_ptr<GraphNodeTag>> nodes;
  std::map<UserObjectTag*, unsigned> user_objects;  // and how many references it has to each
  bool has_memory() const;
};

struct tessera::cuda::GraphExecTag {
  std::shared_ptr<GraphTag> graph;        // a launch that waits for room shares it
  std::shared_ptr<GraphBacking> backing;  // null: it has no memory nodes
  bool auto_free = false;                 // what the last launch has left allocated
};

// An object of the program, with the function that ends it.
struct tessera::cuda::UserObjectTag {
  void* object = nullptr;
  HostFunction destroy = nullptr;
  unsigned references = 0;
};

namespace tessera::cuda {

// The objects of the program that have references.
class UserObjects {
 public:
  // Objects without references. Ends them when it is destroyed, which the caller must do without
  // the driver's mutex.
  class Ended {
   public:
    Ended() = default;
    ~Ended();
    Ended(const Ended&) = delete;
    Ended& operator=(const Ended&) = delete;

   private:
    friend class UserObjects;
    std::vector<std::pair<HostFunction, void*>> calls_;
  };

  UserObjectTag* Create(void* object, HostFunction destroy, unsigned references);
  bool IsObject(UserObjectTag* object) const { return objects_.contains(object); }
  void Release(UserObjectTag* object, unsigned references, Ended* ended);
  // All references that a graph has, and those of its child graphs.
  void Retain(const GraphTag& graph);
  void Release(const GraphTag& graph, Ended* ended);

 private:
  std::map<UserObjectTag*, std::unique_ptr<UserObjectTag>> objects_;
};

// A capture that has begun and not ended.
struct Capture {
  uint64_t id = 0;
  StreamTag* origin = nullptr;
  bool invalid = false;
  std::unique_ptr<GraphTag> graph;
  // The streams that take part, and the last nodes of each.
  std::map<StreamTag*, std::vector<GraphNodeTag*>> streams;
};

// What all captures, graphs and their instances of the process are.
class Graphs {
 public:
  // The capture that the stream takes part in, or null.
  Capture* CaptureOf(StreamTag* stream);
  Capture* Find(uint64_t id);
  // Adds the command to the capture instead of the stream's queue.
  Result AddTo(Capture* capture, StreamTag* stream, GraphNodeType type, Command command,
               EventTag* event = nullptr);
  Result AddMemory(Capture* capture, StreamTag* stream, GraphNodeType type,
                   std::shared_ptr<GraphMemory> memory);
  // Adds a node by hand, after `count` others of the graph.
  Result AddNode(GraphNodeTag** node, GraphTag* graph, GraphNodeTag* const* from, size_t count,
                 std::unique_ptr<GraphNodeTag> made);
  Capture* Begin(StreamTag* stream, uint64_t id);
  // The graph that was captured, if every stream that took part has joined the first one again.
  Result End(Capture* capture, std::unique_ptr<GraphTag>* graph);
  // A captured stream cannot be waited for or asked: true where it is captured, and its capture is
  // invalid from now on.
  bool Invalidate(StreamTag* stream);
  // The stream is destroyed.
  void Forget(StreamTag* stream);

  // Graphs of child nodes, and nodes in them, included.
  bool IsGraph(GraphTag* graph) const;
  bool IsNode(GraphNodeTag* node) const;
  bool IsExec(GraphExecTag* exec) const { return execs_.contains(exec); }
  GraphTag* Keep(std::unique_ptr<GraphTag> graph);
  void Destroy(GraphTag* graph) { graphs_.erase(graph); }
  GraphExecTag* Keep(std::unique_ptr<GraphExecTag> exec);
  void Destroy(GraphExecTag* exec) { execs_.erase(exec); }

 private:
  bool Any(const std::function<bool(const GraphTag&)>& is_it) const;

  std::map<uint64_t, std::unique_ptr<Capture>> captures_;
  std::map<GraphTag*, std::unique_ptr<GraphTag>> graphs_;
  std::map<GraphExecTag*, std::unique_ptr<GraphExecTag>> execs_;
};

std::unique_ptr<GraphTag> Clone(const GraphTag& graph);
// Gives each node the origin of the node in its place in `graph`, which has the same shape.
void TakeOrigins(const GraphTag& graph, GraphTag* clone);
std::unique_ptr<GraphNodeTag> NewNode(GraphNodeType type, Command command = {});

}  // namespace tessera::cuda
