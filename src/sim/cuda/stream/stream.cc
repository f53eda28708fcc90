// SPDX-License-Identifier: Apache-2.0
// Streams, events, and functions of the program that run in a stream.
#include <string.h>

#include <algorithm>
#include <thread>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kEventFlags = 7;
constexpr int kLastStreamAttribute = 17;  // in CUDA 13
constexpr int kMinPriority = 0, kGreatestPriority = -5;

Result CreateStream(Stream* stream, unsigned flags, int priority) {
  CUDA_ENTER(ContextCall, call);
  if (stream == nullptr || flags > 1) return Result::kInvalidValue;
  priority = std::clamp(priority, kGreatestPriority, kMinPriority);
  *stream = call->CreateStream(call.context(), flags, priority);
  return Result::kSuccess;
}

struct EventCall : Call {
  explicit EventCall(Event event) {
    if (result_ != Result::kSuccess || driver().events().contains(event)) return;
    result_ = Result::kInvalidHandle;
  }
};

// Returns a ticket for the record of another process, for which a thread waits.
TicketRef TicketOf(Driver& driver, const std::shared_ptr<SharedEvent>& event, uint64_t record) {
  auto ticket = std::make_shared<Ticket>();
  std::thread([&driver, event, record, ticket] {
    while (!event->IsDone(record, driver.state())) event->Sleep(record);
    std::lock_guard lock(driver.mutex());
    driver.engine().MarkReached(ticket.get());
  }).detach();
  return ticket;
}

}  // namespace

CUDA_EXPORT Result cuStreamCreate(Stream* stream, unsigned flags) {
  return CreateStream(stream, flags, 0);
}
CUDA_EXPORT Result cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  return CreateStream(stream, flags, priority);
}

CUDA_EXPORT Result cuStreamDestroy_v2(Stream stream) {
  CUDA_ENTER(StreamCall, call, stream);
  if (call.stream != stream) return Result::kInvalidValue;  // default streams cannot be destroyed
  call->DestroyStream(stream);
  return Result::kSuccess;
}
CUDA_ALIAS(cuStreamDestroy, cuStreamDestroy_v2)

CUDA_EXPORT Result cuStreamSynchronize(Stream stream) {
  CUDA_ENTER(StreamCall, call, stream);
  return call.Wait(call.stream);
}

CUDA_EXPORT Result cuStreamQuery(Stream stream) {
  CUDA_ENTER(StreamCall, call, stream);
  ContextTag* context = call.stream->context;
  if (call->graphs().Invalidate(call.stream)) return Result::kStreamCaptureUnsupported;
  call->engine().Advance(call.lock());
  if (!call->IsContext(context)) return Result::kContextIsDestroyed;
  const Result health = call->HealthOf(context);
  if (health != Result::kSuccess) return health;
  return call->IsStream(call.stream) && !call.stream->queue.idle() ? Result::kNotReady
                                                                   : Result::kSuccess;
}

CUDA_EXPORT Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  CUDA_ENTER(StreamCall, call, stream);
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  if (flags > kEventExternal) return Result::kInvalidValue;
  if (Capture* own = call->graphs().CaptureOf(call.stream); own != nullptr && flags != 0) {
    return call->graphs().AddTo(own, call.stream, GraphNodeType::kWaitEvent, {}, event);
  }
  if (Capture* capture = call->graphs().FindCapture(event->capture)) {
    std::vector<GraphNodeTag*>& last = capture->streams[call.stream];  // joins the capture
    last.insert(last.end(), event->captured.begin(), event->captured.end());
    return Result::kSuccess;
  }
  if (event->is_remote()) {
    const uint64_t record = event->shared->last_record();
    if (event->shared->IsDone(record, call->state())) return Result::kSuccess;
    return call.Push(call.stream, {.kind = Command::Kind::kWait,
                                   .ticket = TicketOf(call.driver(), event->shared, record)});
  }
  if (event->ticket == nullptr || event->ticket->reached) return Result::kSuccess;
  if (call->graphs().CaptureOf(call.stream) != nullptr) return Result::kSuccess;
  return call.Push(call.stream, {.kind = Command::Kind::kWait, .ticket = event->ticket});
}

CUDA_EXPORT Result cuLaunchHostFunc(Stream stream, HostFunction function, void* data) {
  CUDA_ENTER(StreamCall, call, stream);
  if (function == nullptr) return Result::kInvalidValue;
  return call.Push(call.stream, {.kind = Command::Kind::kHost, .effect = [=] { function(data); }});
}

CUDA_EXPORT Result cuStreamAddCallback(Stream stream, StreamCallback callback, void* data,
                                       unsigned flags) {
  CUDA_ENTER(StreamCall, call, stream);
  if (callback == nullptr || flags != 0) return Result::kInvalidValue;
  return call.Push(call.stream, {.kind = Command::Kind::kHost,
                                 .effect = [=] { callback(stream, Result::kSuccess, data); }});
}

CUDA_EXPORT Result cuStreamGetPriority(Stream stream, int* priority) {
  CUDA_ENTER(StreamCall, call, stream);
  return Put(priority, call.stream->priority);
}
CUDA_EXPORT Result cuStreamGetFlags(Stream stream, unsigned* flags) {
  CUDA_ENTER(StreamCall, call, stream);
  return Put(flags, call.stream->flags);
}
CUDA_EXPORT Result cuStreamGetCtx(Stream stream, Context* context) {
  CUDA_ENTER(StreamCall, call, stream);
  return Put(context, call.stream->context);
}
CUDA_EXPORT Result cuStreamGetCtx_v2(Stream stream, Context* context, void** green_context) {
  CUDA_ENTER(StreamCall, call, stream);
  PutIf(context, call.stream->context);
  if (green_context != nullptr) *green_context = nullptr;  // not implemented
  return Result::kSuccess;
}

CUDA_EXPORT Result cuStreamGetAttribute(Stream stream, int id, StreamAttribute* value) {
  CUDA_ENTER(StreamCall, call, stream);
  if (value == nullptr || id <= 0 || id > kLastStreamAttribute) return Result::kInvalidValue;
  *value = call.stream->attributes[id];
  if (id == kStreamPriority) memcpy(value, &call.stream->priority, sizeof(call.stream->priority));
  return Result::kSuccess;
}
CUDA_EXPORT Result cuStreamSetAttribute(Stream stream, int id, const StreamAttribute* value) {
  CUDA_ENTER(StreamCall, call, stream);
  if (value == nullptr || id <= 0 || id > kLastStreamAttribute) return Result::kInvalidValue;
  if (id == kStreamPriority) return Result::kInvalidValue;  // fixed at creation
  call.stream->attributes[id] = *value;
  return Result::kSuccess;
}
CUDA_EXPORT Result cuStreamCopyAttributes(Stream to, Stream from) {
  CUDA_ENTER(StreamCall, call, to);
  const StreamTag* source = call->FindStream(call.context(), from);
  if (source == nullptr) return Result::kInvalidHandle;
  call.stream->attributes = source->attributes;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuStreamGetDevice(Stream stream, Device* device) {
  CUDA_ENTER(StreamCall, call, stream);
  return Put(device, call.stream->context->device);
}
CUDA_EXPORT Result cuStreamGetId(Stream stream, unsigned long long* id) {
  CUDA_ENTER(StreamCall, call, stream);
  return Put(id, call.stream->id);
}
CUDA_EXPORT Result cuEventCreate(Event* event, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (event == nullptr || flags > kEventFlags) return Result::kInvalidValue;
  std::shared_ptr<SharedEvent> shared;
  if ((flags & kEventInterprocess) != 0) {
    if ((flags & kEventNoTiming) == 0) return Result::kInvalidValue;
    shared = SharedEvent::Create();
    if (shared == nullptr) return Result::kOperatingSystem;
  }
  auto* created = new EventTag();
  created->context = call.context();
  created->flags = flags;
  created->shared = std::move(shared);
  call->events().insert(created);
  *event = created;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuEventDestroy_v2(Event event) {
  CUDA_ENTER(EventCall, call, event);
  call->events().erase(event);
  delete event;
  return Result::kSuccess;
}
CUDA_ALIAS(cuEventDestroy, cuEventDestroy_v2)

CUDA_EXPORT Result cuEventRecord(Event event, Stream stream) {
  CUDA_ENTER(StreamCall, call, stream);
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  if (event->context != call.stream->context) return Result::kInvalidHandle;
  event->capture = 0;
  if (Capture* capture = call->graphs().CaptureOf(call.stream)) {
    event->capture = capture->id;
    event->captured = capture->streams[call.stream];
    return Result::kSuccess;
  }
  call->engine().WaitForRoom(call.stream, call.lock());
  if (!call->events().contains(event) || !call->IsStream(call.stream)) {
    return Result::kInvalidHandle;  // destroyed by another thread meanwhile
  }
  if (const auto shared = event->shared) {
    const uint64_t record = event->record = shared->Record(call->slot().index());
    event->ticket = call->engine().Record(call.stream, [=] { shared->Finish(record); });
  } else {
    event->ticket = call->engine().Record(call.stream);
  }
  return Result::kSuccess;
}
CUDA_EXPORT Result cuEventRecordWithFlags(Event event, Stream stream, unsigned flags) {
  if (flags > kEventExternal) return Result::kInvalidValue;
  {
    CUDA_ENTER(StreamCall, call, stream);
    Capture* capture = call->graphs().CaptureOf(call.stream);
    if (flags == kEventExternal && capture != nullptr) {
      if (!call->events().contains(event)) return Result::kInvalidHandle;
      return call->graphs().AddTo(capture, call.stream, GraphNodeType::kEventRecord, {}, event);
    }
  }
  return cuEventRecord(event, stream);
}

CUDA_EXPORT Result cuEventQuery(Event event) {
  CUDA_ENTER(EventCall, call, event);
  if (call->graphs().FindCapture(event->capture) != nullptr) return Result::kCapturedEvent;
  if (call->graphs().InvalidateByUnsafeCall()) return Result::kStreamCaptureUnsupported;
  ContextTag* context = event->context;
  if (event->is_remote()) {
    const uint64_t record = event->shared->last_record();
    return event->shared->IsDone(record, call->state()) ? Result::kSuccess : Result::kNotReady;
  }
  const TicketRef ticket = event->ticket;
  call->engine().Advance(call.lock());
  if (!call->IsContext(context)) return Result::kContextIsDestroyed;
  const Result health = call->HealthOf(context);
  if (health != Result::kSuccess || ticket == nullptr) return health;
  return ticket->done ? Result::kSuccess : Result::kNotReady;
}

CUDA_EXPORT Result cuEventSynchronize(Event event) {
  CUDA_ENTER(EventCall, call, event);
  if (call->graphs().FindCapture(event->capture) != nullptr) return Result::kCapturedEvent;
  const Result health = call->HealthOf(event->context);
  if (event->is_remote() && health == Result::kSuccess) {
    const std::shared_ptr<SharedEvent> shared = event->shared;
    const uint64_t record = shared->last_record();
    call.lock()->unlock();
    while (!shared->IsDone(record, call->state())) shared->Sleep(record);
    call.lock()->lock();
    return Result::kSuccess;
  }
  if (health != Result::kSuccess || event->ticket == nullptr) return health;
  const TicketRef ticket = event->ticket;  // a copy: the event may be recorded again
  return call.Wait(event->context, ticket);
}

CUDA_EXPORT Result cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  CUDA_ENTER(EventCall, call, start);
  if (!call->events().contains(end)) return Result::kInvalidHandle;
  if (milliseconds == nullptr) return Result::kInvalidValue;
  if (start->ticket == nullptr || end->ticket == nullptr) return Result::kInvalidHandle;
  if (((start->flags | end->flags) & kEventNoTiming) != 0) return Result::kInvalidHandle;
  if (!start->ticket->done || !end->ticket->done) return Result::kNotReady;
  *milliseconds = float(double(int64_t(end->ticket->at_ns - start->ticket->at_ns)) / 1e6);
  return Result::kSuccess;
}
CUDA_ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime)

CUDA_PER_THREAD(cuStreamSynchronize_ptsz, cuStreamSynchronize, 1)
CUDA_PER_THREAD(cuStreamQuery_ptsz, cuStreamQuery, 1)
CUDA_PER_THREAD(cuStreamWaitEvent_ptsz, cuStreamWaitEvent, 3)
CUDA_PER_THREAD(cuStreamAddCallback_ptsz, cuStreamAddCallback, 4)
CUDA_PER_THREAD(cuStreamGetPriority_ptsz, cuStreamGetPriority, 2)
CUDA_PER_THREAD(cuStreamGetFlags_ptsz, cuStreamGetFlags, 2)
CUDA_PER_THREAD(cuStreamGetCtx_ptsz, cuStreamGetCtx, 2)
CUDA_PER_THREAD(cuStreamGetCtx_v2_ptsz, cuStreamGetCtx_v2, 3)
CUDA_PER_THREAD(cuStreamGetAttribute_ptsz, cuStreamGetAttribute, 3)
CUDA_PER_THREAD(cuStreamSetAttribute_ptsz, cuStreamSetAttribute, 3)
CUDA_PER_THREAD(cuStreamCopyAttributes_ptsz, cuStreamCopyAttributes, 2)
CUDA_PER_THREAD(cuStreamGetDevice_ptsz, cuStreamGetDevice, 2)
CUDA_PER_THREAD(cuStreamGetId_ptsz, cuStreamGetId, 2)
CUDA_PER_THREAD(cuLaunchHostFunc_ptsz, cuLaunchHostFunc, 3)
CUDA_PER_THREAD(cuEventRecord_ptsz, cuEventRecord, 2)
CUDA_PER_THREAD(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags, 3)

}  // namespace tessera::cuda
