// SPDX-License-Identifier: Apache-2.0
// Stream capture: the functions that begin, end and query it.
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

bool IsMode(int mode) { return mode >= 0 && mode <= int(CaptureMode::kRelaxed); }

Result FindStreamToCapture(ContextCall& call, Stream stream, int mode, StreamTag** found) {
  *found = call->FindStream(call.context(), stream);
  if (*found == nullptr) return Result::kInvalidHandle;
  if (!IsMode(mode)) return Result::kInvalidValue;
  if ((*found)->is_legacy()) return Result::kStreamCaptureUnsupported;
  return call->graphs().CaptureOf(*found) == nullptr ? Result::kSuccess : Result::kInvalidValue;
}

}  // namespace

CaptureMode& ThreadCaptureMode() {
  static thread_local CaptureMode mode = CaptureMode::kGlobal;
  return mode;
}

CUDA_EXPORT Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = nullptr;
  const Result result = FindStreamToCapture(call, stream, mode, &found);
  if (result == Result::kSuccess) {
    call->graphs().BeginCapture(found, call->NextId(), static_cast<CaptureMode>(mode));
  }
  return result;
}
// The first captured operation of the stream depends on `nodes` of the graph.
CUDA_EXPORT Result cuStreamBeginCaptureToGraph(Stream stream, void* graph, const void* nodes,
                                               const void* edges, size_t count, int mode) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* found = nullptr;
  const Result result = FindStreamToCapture(call, stream, mode, &found);
  if (result != Result::kSuccess) return result;
  auto* into = static_cast<GraphTag*>(graph);
  const auto* from = static_cast<const GraphNode*>(nodes);
  const bool valid = call->graphs().IsGraph(into) && !call->graphs().IsCapturing(into) &&
                     (count == 0 || from != nullptr);
  if (!valid) return Result::kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    if (!call->graphs().IsNodeOf(into, from[i])) return Result::kInvalidValue;
  }
  if (HasPorts(static_cast<const GraphEdge*>(edges), count)) return Result::kNotSupported;
  Capture* capture =
      call->graphs().BeginCapture(found, call->NextId(), static_cast<CaptureMode>(mode), into);
  capture->streams[found].assign(from, from + count);
  return Result::kSuccess;
}
CUDA_PER_THREAD(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 6)
CUDA_EXPORT Result cuStreamBeginCapture(Stream stream) {
  return cuStreamBeginCapture_v2(stream, 0);
}
CUDA_PER_THREAD(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2, 2)
CUDA_PER_THREAD(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, 1)

CUDA_EXPORT Result cuStreamEndCapture(Stream stream, Graph* graph) {
  CUDA_ENTER(StreamCall, call, stream);
  Capture* capture = call->graphs().CaptureOf(call.stream);
  if (capture == nullptr || graph == nullptr) return Result::kInvalidValue;
  if (capture->origin_stream != call.stream) return Result::kStreamCaptureUnmatched;
  const bool wrong_thread = capture->thread != std::this_thread::get_id();
  if (wrong_thread && capture->mode != CaptureMode::kRelaxed) {
    return Result::kStreamCaptureWrongThread;
  }
  return call->graphs().EndCapture(capture, graph);
}
CUDA_PER_THREAD(cuStreamEndCapture_ptsz, cuStreamEndCapture, 2)

CUDA_EXPORT Result cuStreamIsCapturing(Stream stream, int* status) {
  CUDA_ENTER(StreamCall, call, stream);
  return Put(status, StatusOf(call->graphs().CaptureOf(call.stream)));
}
CUDA_PER_THREAD(cuStreamIsCapturing_ptsz, cuStreamIsCapturing, 2)

CUDA_EXPORT Result cuStreamGetCaptureInfo_v2(Stream stream, int* status, uint64_t* id, Graph* graph,
                                             const GraphNode** from, size_t* count) {
  CUDA_ENTER(StreamCall, call, stream);
  Capture* capture = call->graphs().CaptureOf(call.stream);
  if (capture == nullptr) return Put(status, kCaptureNone);
  const std::vector<GraphNodeTag*>& last = capture->streams[call.stream];
  PutIf(id, capture->id);
  if (graph != nullptr) *graph = capture->graph;
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
// kReplaceDependencies also the previous dependencies.
CUDA_EXPORT Result cuStreamUpdateCaptureDependencies(Stream stream, const GraphNode* nodes,
                                                     size_t count, unsigned flags) {
  CUDA_ENTER(StreamCall, call, stream);
  Capture* capture = call->graphs().CaptureOf(call.stream);
  if (capture == nullptr || flags > kReplaceDependencies || (count != 0 && nodes == nullptr)) {
    return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    if (!call->graphs().IsNodeOf(capture->graph, nodes[i])) return Result::kInvalidValue;
  }
  std::vector<GraphNodeTag*>& last = capture->streams[call.stream];
  if (flags == kReplaceDependencies) last.clear();
  last.insert(last.end(), nodes, nodes + count);
  return Result::kSuccess;
}
CUDA_PER_THREAD(cuStreamUpdateCaptureDependencies_ptsz, cuStreamUpdateCaptureDependencies, 4)
CUDA_EXPORT Result cuStreamUpdateCaptureDependencies_v2(Stream stream, const GraphNode* nodes,
                                                        const void* edges, size_t count,
                                                        unsigned flags) {
  if (HasPorts(static_cast<const GraphEdge*>(edges), count)) return Result::kNotSupported;
  return cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}
CUDA_PER_THREAD(cuStreamUpdateCaptureDependencies_v2_ptsz, cuStreamUpdateCaptureDependencies_v2, 5)

CUDA_EXPORT Result cuThreadExchangeStreamCaptureMode(int* mode) {
  if (mode == nullptr || !IsMode(*mode)) return Result::kInvalidValue;
  const CaptureMode previous = ThreadCaptureMode();
  ThreadCaptureMode() = static_cast<CaptureMode>(*mode);
  *mode = static_cast<int>(previous);
  return Result::kSuccess;
}

}  // namespace tessera::cuda
