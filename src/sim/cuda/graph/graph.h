// SPDX-License-Identifier: Apache-2.0
// Graphs: commands with dependencies, created node by node or by stream capture, and launched
// together.
//
// The commands of a launched graph run sequentially, in an order that their dependencies allow.
// Threads: REQUIRES the driver's mutex.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "src/sim/cuda/graph/graph_memory.h"
#include "src/sim/cuda/stream/engine.h"

namespace tessera::cuda {

// The parameters of a kernel node, with copies of the values that they point to.
struct KernelNode {
  KernelNodeParameters parameters = {};
  std::vector<unsigned char> bytes;
  std::vector<void*> values;  // within `bytes`
  size_t size = 0;            // size of `bytes`; `extra` points to it
  void* extra[5] = {};
};

// The parameters that the program gave a node; none for captured nodes.
using NodeParameters = std::variant<std::monostate, std::shared_ptr<const KernelNode>, Memcpy3D,
                                    MemsetNodeParameters, HostNodeParameters>;

// The condition of a conditional node. Its value never changes, because kernels of the simulation
// do not set it.
struct GraphCondition {
  ConditionalHandle handle = 0;
  ConditionalType type = ConditionalType::kIf;
  unsigned value = 0;
  // The index of the body to run; the node may have no such body. A loop runs its body once: on a
  // real GPU, a kernel in the body would end the loop.
  size_t body() const { return type == ConditionalType::kSwitch ? value : value != 0 ? 0 : 1; }
};

}  // namespace tessera::cuda

// ABI handles point at the following types.
struct tessera::cuda::GraphNodeTag {
  GraphTag* graph = nullptr;
  GraphNodeType type = GraphNodeType::kEmpty;
  Command command;  // unused in child graphs, empty nodes and event records
  NodeParameters parameters;
  std::map<int, StreamAttribute> attributes;  // of a kernel, set by the program
  bool enabled = true;                        // false: a launch skips it
  EventTag* event = nullptr;                  // kEventRecord, kWaitEvent
  // kGraph: one graph. kConditional: its bodies.
  std::vector<std::unique_ptr<GraphTag>> children;
  GraphCondition condition;             // kConditional
  std::vector<Graph> bodies;            // `children` as the program sees them
  std::shared_ptr<GraphMemory> memory;  // kMemAlloc, kMemFree
  std::vector<GraphNodeTag*> dependencies;
  // The node from which this node was cloned; it may be destroyed. Programs name the nodes of an
  // instance by the nodes of its original graph.
  const GraphNodeTag* origin = nullptr;
};

// Nodes are sorted: each follows its dependencies.
struct tessera::cuda::GraphTag {
  std::vector<std::unique_ptr<GraphNodeTag>> nodes;
  std::map<UserObjectTag*, unsigned> user_objects;  // with the number of references
  // The value of each condition at the start of a launch. The handle is that of a conditional node
  // of this graph or of a graph in it.
  std::map<ConditionalHandle, unsigned> conditions;
  bool has_memory() const;
};

struct tessera::cuda::GraphExecTag {
  // Shared with a launch that waits until the queue of its stream has space.
  std::shared_ptr<GraphTag> graph;
  std::shared_ptr<GraphBacking> backing;  // null: no memory nodes
  uint64_t flags = 0;
  // True: each launch first frees the allocations that the previous launch left.
  bool auto_free() const { return (flags & kInstantiateAutoFree) != 0; }
};

// An object of the program with its destructor (cuUserObjectCreate).
struct tessera::cuda::UserObjectTag {
  void* object = nullptr;
  HostFunction destroy = nullptr;
  unsigned references = 0;
};

namespace tessera::cuda {

// The program's objects that graphs keep alive, with counts of references.
class UserObjects {
 public:
  // Calls of the program's destructors for objects that have lost their last reference. The
  // destructor of this class makes the calls, and must run without the driver's mutex.
  class DeferredDestroyCalls {
   public:
    DeferredDestroyCalls() = default;
    ~DeferredDestroyCalls();
    DeferredDestroyCalls(const DeferredDestroyCalls&) = delete;
    DeferredDestroyCalls& operator=(const DeferredDestroyCalls&) = delete;

   private:
    friend class UserObjects;
    std::vector<std::pair<HostFunction, void*>> calls_;
  };

  UserObjectTag* Create(void* object, HostFunction destroy, unsigned references);
  bool IsObject(UserObjectTag* object) const { return objects_.contains(object); }
  void Release(UserObjectTag* object, unsigned references, DeferredDestroyCalls* deferred);
  // Adds the references of a graph and of its child graphs.
  void Retain(const GraphTag& graph);
  void Release(const GraphTag& graph, DeferredDestroyCalls* deferred);

 private:
  std::map<UserObjectTag*, std::unique_ptr<UserObjectTag>> objects_;
};

// CUstreamCaptureMode. Captures and threads have a mode. The two modes decide which threads must
// not make unsafe calls, such as allocations, during a capture:
//
//   of the capture   global: all threads; thread-local: the thread that began it; relaxed: none
//   of a thread      global: the thread obeys all captures; thread-local: only captures that it
//                    began itself; relaxed: none
enum class CaptureMode { kGlobal, kThreadLocal, kRelaxed };

// The mode of this thread.
CaptureMode& ThreadCaptureMode();

// A capture in progress.
struct Capture {
  uint64_t id = 0;
  CaptureMode mode = CaptureMode::kGlobal;
  std::thread::id thread;  // the thread that began the capture
  StreamTag* origin_stream = nullptr;
  bool invalid = false;
  GraphTag* graph = nullptr;              // the graph to which the capture adds nodes
  std::unique_ptr<GraphTag> owned_graph;  // the same graph, if the capture has created it
  // The streams of the capture, with the last nodes of each.
  std::map<StreamTag*, std::vector<GraphNodeTag*>> streams;
};

// All captures, graphs and instances of the process.
class Graphs {
 public:
  // The capture of the stream, or null.
  Capture* CaptureOf(StreamTag* stream);
  Capture* FindCapture(uint64_t id);
  // Adds the command to the capture instead of the stream's queue.
  Result AddTo(Capture* capture, StreamTag* stream, GraphNodeType type, Command command,
               EventTag* event = nullptr);
  Result AddMemory(Capture* capture, StreamTag* stream, GraphNodeType type,
                   std::shared_ptr<GraphMemory> memory);
  // Adds a node that depends on `count` other nodes of the graph.
  Result AddNode(GraphNodeTag** node, GraphTag* graph, GraphNodeTag* const* from, size_t count,
                 std::unique_ptr<GraphNodeTag> created);
  // Adds nodes to `graph`; null: to a new graph.
  Capture* BeginCapture(StreamTag* stream, uint64_t id, CaptureMode mode,
                        GraphTag* graph = nullptr);
  // Ends the capture. Every stream of the capture must have joined the first stream again, or else
  // *graph is null.
  Result EndCapture(Capture* capture, GraphTag** graph);
  // True: a capture adds nodes to the graph.
  bool IsCapturing(const GraphTag* graph) const;
  // Called if the program waits for a stream or queries the stream. True: the stream is captured,
  // and its capture is now invalid.
  bool Invalidate(StreamTag* stream);
  // Called by unsafe calls. True: captures forbid the call to this thread, and are now invalid.
  bool InvalidateByUnsafeCall();
  // Removes a stream that is destroyed.
  void RemoveStream(StreamTag* stream);

  // IsGraph and IsNode include the graphs of child nodes, the bodies of conditional nodes, and
  // their nodes.
  bool IsGraph(GraphTag* graph) const;
  bool IsNode(GraphNodeTag* node) const;
  // True: `graph` itself has the node, not a graph in it.
  bool IsNodeOf(const GraphTag* graph, GraphNodeTag* node) const;
  // True: the graph is neither in another graph nor created by a capture in progress.
  bool IsOwnedByProgram(GraphTag* graph) const { return graphs_.contains(graph); }
  bool IsExec(GraphExecTag* exec) const { return execs_.contains(exec); }
  // The graph that has this handle in its `conditions`, and that contains or is `graph`; or null.
  const GraphTag* OwnerOf(ConditionalHandle handle, const GraphTag* graph) const;
  GraphTag* Add(std::unique_ptr<GraphTag> graph);
  void Destroy(GraphTag* graph) { graphs_.erase(graph); }
  GraphExecTag* Add(std::unique_ptr<GraphExecTag> exec);
  void Destroy(GraphExecTag* exec) { execs_.erase(exec); }

 private:
  bool AnyKnownGraph(const std::function<bool(const GraphTag&)>& predicate) const;

  std::map<uint64_t, std::unique_ptr<Capture>> captures_;
  std::map<GraphTag*, std::unique_ptr<GraphTag>> graphs_;
  std::map<GraphExecTag*, std::unique_ptr<GraphExecTag>> execs_;
};

std::unique_ptr<GraphTag> Clone(const GraphTag& graph);
// Sets the origin of each node of `clone` to the origin of the node of `graph` that it copies.
void CopyOrigins(const GraphTag& graph, GraphTag* clone);
// The node of the graph, or of the graph of a child node, that was cloned from `origin`; or null.
GraphNodeTag* FindClone(const GraphTag& graph, const GraphNodeTag* origin);
// FindClone in an instance, to change the node. A waiting launch keeps the old graph.
GraphNodeTag* FindCloneToChange(GraphExecTag* exec, const GraphNodeTag* origin);
// These functions look in the graph, in the graphs of child nodes, and in bodies.
bool HasUserObjects(const GraphTag& graph);
bool HasConditionalNode(const GraphTag& graph, ConditionalHandle handle);
bool HasConditionalNodes(const GraphTag& graph);
// Returns why the conditional nodes prevent an instance, as a CUgraphInstantiateResult.
int CheckConditionalNodes(const GraphTag& graph);
// Adds a node of type kConditional, and writes its bodies to `parameters`.
Result AddConditionalNode(GraphNode* node, Graph graph, const GraphNode* from, size_t count,
                          ConditionalNodeParameters* parameters);
// True: an edge has ports. The simulation implements only edges from the end of a node to the start
// of another node.
bool HasPorts(const GraphEdge* edges, size_t count);
std::unique_ptr<GraphNodeTag> NewNode(GraphNodeType type, Command command = {});

}  // namespace tessera::cuda
