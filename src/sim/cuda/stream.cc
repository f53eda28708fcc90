// SPDX-License-Identifier: Apache-2.0
// Streams, events and functions of the program that run in a stream.
#include <algorithm>

#include "src/sim/cuda/callbacks.h"
#include "src/sim/cuda/driver.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kEventNoTiming = 2;
constexpr unsigned kEventFlags = 7;
constexpr int kLeastPriority = 0, kGreatestPriority = -5;

Result CreateStream(Stream* stream, unsigned flags, int priority) {
  CUDA_ENTER(ContextCall, call);
  if (stream == nullptr || flags > 1) return Result::kInvalidValue;
  priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  *stream = call->CreateStream(call.context(), flags, priority);
  return Result::kSuccess;
}

struct StreamCall : ContextCall {
  explicit StreamCall(Stream handle) {
    status = ContextCall::result();
    if (status != Result::kSuccess) return;
    stream = driver().FindStream(context(), handle);
    if (stream == nullptr) status = Result::kInvalidHandle;
  }
  Result status = Result::kSuccess;
  StreamTag* stream = nullptr;
};

#define STREAM_ENTER(call, handle) \
  StreamCall call(handle);         \
  if (call.status != Result::kSuccess) return call.status

struct EventCall : Call {
  explicit EventCall(Event event) {
    status = Call::result();
    if (status == Result::kSuccess && !driver().events().contains(event)) {
      status = Result::kInvalidHandle;
    }
  }
  Result status = Result::kSuccess;
};

#define EVENT_ENTER(call, event) \
  EventCall call(event);         \
  if (call.status != Result::kSuccess) return call.status

}  // namespace

CUDA_EXPORT Result cuStreamCreate(Stream* stream, unsigned flags) {
  return CreateStream(stream, flags, 0);
}
CUDA_EXPORT Result cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  return CreateStream(stream, flags, priority);
}

CUDA_EXPORT Result cuStreamDestroy_v2(Stream stream) {
  STREAM_ENTER(call, stream);
  if (call.stream != stream) return Result::kInvalidValue;  // the default streams stay
  call->DestroyStream(stream);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuStreamSynchronize(Stream stream) {
  STREAM_ENTER(call, stream);
  return call.Wait(call.stream->context, call->ReadyAt(call.stream));
}

CUDA_EXPORT Result cuStreamQuery(Stream stream) {
  STREAM_ENTER(call, stream);
  return call->ReadyAt(call.stream) > sim::MonotonicNs() ? Result::kNotReady : Result::kSuccess;
}

CUDA_EXPORT Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  STREAM_ENTER(call, stream);
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  if (event->recorded) call.stream->ready_ns = std::max(call.stream->ready_ns, event->at_ns);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuLaunchHostFunc(Stream stream, HostFunction function, void* data) {
  STREAM_ENTER(call, stream);
  if (function == nullptr) return Result::kInvalidValue;
  const uint64_t when = call->Enqueue(call.stream, 0).end_ns;
  RunAt(when, [=] { function(data); });
  return Result::kSuccess;
}

CUDA_EXPORT Result cuStreamAddCallback(Stream stream, StreamCallback callback, void* data,
                                       unsigned flags) {
  STREAM_ENTER(call, stream);
  if (callback == nullptr || flags != 0) return Result::kInvalidValue;
  const uint64_t when = call->Enqueue(call.stream, 0).end_ns;
  RunAt(when, [=] { callback(stream, Result::kSuccess, data); });
  return Result::kSuccess;
}

CUDA_EXPORT Result cuStreamGetPriority(Stream stream, int* priority) {
  STREAM_ENTER(call, stream);
  return Put(priority, call.stream->priority);
}
CUDA_EXPORT Result cuStreamGetFlags(Stream stream, unsigned* flags) {
  STREAM_ENTER(call, stream);
  return Put(flags, call.stream->flags);
}
CUDA_EXPORT Result cuStreamGetCtx(Stream stream, Context* context) {
  STREAM_ENTER(call, stream);
  return Put(context, call.stream->context);
}
CUDA_EXPORT Result cuStreamGetDevice(Stream stream, Device* device) {
  STREAM_ENTER(call, stream);
  return Put(device, call.stream->context->device);
}
CUDA_EXPORT Result cuStreamGetId(Stream stream, unsigned long long* id) {
  STREAM_ENTER(call, stream);
  return Put(id, call.stream->id);
}
CUDA_EXPORT Result cuStreamIsCapturing(Stream stream, int* status) {
  STREAM_ENTER(call, stream);
  return Put(status, 0);  // graphs are not implemented
}

CUDA_EXPORT Result cuEventCreate(Event* event, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (event == nullptr || flags > kEventFlags) return Result::kInvalidValue;
  auto* made = new EventTag();
  made->context = call.context();
  made->flags = flags;
  call->events().insert(made);
  *event = made;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuEventDestroy_v2(Event event) {
  EVENT_ENTER(call, event);
  call->events().erase(event);
  delete event;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuEventRecord(Event event, Stream stream) {
  STREAM_ENTER(call, stream);
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  if (event->context != call.stream->context) return Result::kInvalidHandle;
  event->recorded = true;
  event->at_ns = call->Enqueue(call.stream, 0).end_ns;
  return Result::kSuccess;
}
CUDA_EXPORT Result cuEventRecordWithFlags(Event event, Stream stream, unsigned flags) {
  return flags > 1 ? Result::kInvalidValue : cuEventRecord(event, stream);
}

CUDA_EXPORT Result cuEventQuery(Event event) {
  EVENT_ENTER(call, event);
  const Result health = call->HealthOf(event->context);
  if (health != Result::kSuccess || !event->recorded) return health;
  return event->at_ns > sim::MonotonicNs() ? Result::kNotReady : Result::kSuccess;
}

CUDA_EXPORT Result cuEventSynchronize(Event event) {
  EVENT_ENTER(call, event);
  const Result health = call->HealthOf(event->context);
  if (health != Result::kSuccess || !event->recorded) return health;
  return call.Wait(event->context, event->at_ns);
}

CUDA_EXPORT Result cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  EVENT_ENTER(call, start);
  if (!call->events().contains(end)) return Result::kInvalidHandle;
  if (milliseconds == nullptr) return Result::kInvalidValue;
  if (!start->recorded || !end->recorded) return Result::kInvalidHandle;
  if (((start->flags | end->flags) & kEventNoTiming) != 0) return Result::kInvalidHandle;
  const uint64_t now = sim::MonotonicNs();
  if (start->at_ns > now || end->at_ns > now) return Result::kNotReady;
  *milliseconds = float(double(int64_t(end->at_ns - start->at_ns)) / 1e6);
  return Result::kSuccess;
}
CUDA_ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime)

CUDA_ALIAS(cuStreamSynchronize_ptsz, cuStreamSynchronize)
CUDA_ALIAS(cuStreamQuery_ptsz, cuStreamQuery)
CUDA_ALIAS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent)
CUDA_ALIAS(cuStreamAddCallback_ptsz, cuStreamAddCallback)
CUDA_ALIAS(cuStreamGetPriority_ptsz, cuStreamGetPriority)
CUDA_ALIAS(cuStreamGetFlags_ptsz, cuStreamGetFlags)
CUDA_ALIAS(cuStreamGetCtx_ptsz, cuStreamGetCtx)
CUDA_ALIAS(cuStreamGetDevice_ptsz, cuStreamGetDevice)
CUDA_ALIAS(cuStreamGetId_ptsz, cuStreamGetId)
CUDA_ALIAS(cuStreamIsCapturing_ptsz, cuStreamIsCapturing)
CUDA_ALIAS(cuLaunchHostFunc_ptsz, cuLaunchHostFunc)
CUDA_ALIAS(cuEventRecord_ptsz, cuEventRecord)
CUDA_ALIAS(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags)

}  // namespace tessera::cuda
