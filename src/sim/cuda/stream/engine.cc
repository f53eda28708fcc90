// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/stream/engine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/futex.h"

namespace tessera::cuda {
namespace {

using Kind = Command::Kind;

// A remainder below this is a rounding error.
constexpr double kRoundingErrorNs = 0.5;

bool NeedsOnlyGpu(const Command& command) {
  const bool kind = command.kind == Kind::kCompute || command.kind == Kind::kRecord;
  return kind && !command.awaits_order;
}

}  // namespace

Engine::GpuTimeline& Engine::TimelineOf(const StreamTag* stream) {
  const uint32_t index = driver_->GpuOf(stream->context->device);
  GpuTimeline& gpu = gpus_[index];
  if (gpu.turns == nullptr) {
    gpu.turns = std::make_unique<sim::Turns>(&driver_->slot(), index);
  }
  return gpu;
}

void Engine::Push(StreamTag* stream, Command command) {
  Queue& queue = stream->queue;
  const ContextTag& context = *stream->context;
  command.order = ++last_order_;
  command.since_ns = sim::MonotonicNs();
  command.cost_ns = command.remaining_ns;
  if (stream->is_legacy()) {
    const auto busy = [](const StreamTag* other) {
      return other->is_blocking() && !other->queue.commands.empty();
    };
    command.awaits_order = std::ranges::any_of(context.streams, busy);
  } else if (stream->is_blocking()) {
    command.awaits_order = !context.legacy.queue.commands.empty();
  }
  const bool for_worker = command.needs_worker();
  const uint64_t since_ns = command.since_ns;
  queue.pushed_cost_ns += command.cost_ns;
  ++queue.pushed;
  if (queue.commands.empty()) active_.push_back(stream);
  queue.commands.push_back(std::move(command));
  ExtendReady(stream, since_ns);
  if (for_worker) WakeWorker(stream);
}

TicketRef Engine::PushTicket(StreamTag* stream, double cost_ns, std::function<void()> effect) {
  auto ticket = std::make_shared<Ticket>();
  ticket->stream = stream;
  ticket->cost_before_ns = stream->queue.pushed_cost_ns;
  Push(stream, {.kind = Kind::kRecord,
                .share = 1,
                .remaining_ns = cost_ns,
                .ticket = ticket,
                .effect = std::move(effect)});
  return ticket;
}

void Engine::MarkReached(Ticket* ticket) {
  ticket->reached = ticket->done = true;
  ticket->at_ns = sim::MonotonicNs();
  for (std::atomic<uint32_t>* word : {&progress_, &work_}) {
    word->fetch_add(1);
    sim::FutexWakeAll(word);
  }
}

// Extends the ready commands up to the first command that waits for something other than the GPU.
// Requests GPU time for the added commands.
void Engine::ExtendReady(StreamTag* stream, uint64_t since_ns) {
  Queue& queue = stream->queue;
  double more = 0;
  while (queue.ready_commands < queue.commands.size() &&
         NeedsOnlyGpu(queue.commands[queue.ready_commands])) {
    more += queue.commands[queue.ready_commands++].remaining_ns;
  }
  queue.ready_ns += more;
  if (more > 0) TimelineOf(stream).turns->RequestMore(uint64_t(std::ceil(more)), since_ns);
}

// True: all commands that the rules of the legacy stream put before this command have ended. Raises
// *since_ns to their end.
bool Engine::PredecessorsEnded(const StreamTag* stream, const Command& command,
                               uint64_t* since_ns) const {
  const auto has_ended = [&](const StreamTag& other) {
    *since_ns = std::max(*since_ns, other.queue.end_ns);
    return other.queue.commands.empty() || other.queue.commands.front().order > command.order;
  };
  const ContextTag& context = *stream->context;
  if (!stream->is_legacy()) return has_ended(context.legacy);
  return std::ranges::all_of(context.streams, [&](const StreamTag* other) {
    return !other->is_blocking() || has_ended(*other);
  });
}

// Removes the command at the head, which has ended.
void Engine::Finish(StreamTag* stream, uint64_t at_ns) {
  Queue& queue = stream->queue;
  DueEffect due{stream, std::move(queue.commands.front())};
  queue.commands.pop_front();
  queue.end_ns = std::max(queue.end_ns, at_ns);
  queue.done_cost_ns += due.command.cost_ns;
  if (queue.ready_commands > 0)
    --queue.ready_commands;
  else
    ExtendReady(stream, queue.end_ns);
  if (queue.commands.empty()) {
    queue.ready_ns = 0;
    std::erase(active_, stream);
  }
  if (due.command.kind == Kind::kRecord) {
    due.command.ticket->reached = true;
    due.command.ticket->at_ns = queue.end_ns;
    due.command.ticket->stream = nullptr;
  }
  const bool is_immediate = due_.empty() && !due.command.effect;
  if (is_immediate)
    MarkDone(&due);
  else
    due_.push_back(std::move(due));
}

// Ends commands at the head that need no GPU. True: something changed.
bool Engine::EndHeadCommands(StreamTag* stream, uint64_t now_ns) {
  Queue& queue = stream->queue;
  bool changed = false;
  while (!queue.commands.empty() && !queue.in_host_function) {
    Command& head = queue.commands.front();
    uint64_t since = std::max(head.since_ns, queue.end_ns);
    if (head.awaits_order) {
      if (!PredecessorsEnded(stream, head, &since)) break;
      head.awaits_order = false;
      head.since_ns = since;
      ExtendReady(stream, since);
    }
    if (since > now_ns || head.needs_gpu()) break;
    if (head.kind == Kind::kWait) {
      if (!head.ticket->reached) break;
      since = std::max(since, head.ticket->at_ns);
    } else if (head.kind == Kind::kTransfer) {
      since += uint64_t(head.remaining_ns);
      if (since > now_ns) break;
    } else if (head.kind == Kind::kHost) {
      queue.in_host_function = true;
      due_.push_back({stream, std::move(head)});
      return true;
    }
    Finish(stream, since);
    changed = true;
  }
  return changed;
}

void Engine::Simulate(uint64_t now_ns) {
  bool changed = true;
  while (changed && !active_.empty()) {
    changed = false;
    for (size_t i = active_.size(); i-- > 0;) {
      StreamTag* stream = active_[i];
      if (driver_->HealthOf(stream->context) != Result::kSuccess) {
        DropStream(stream);
        changed = true;
      } else if (EndHeadCommands(stream, now_ns)) {
        changed = true;
      }
      i = std::min(i, active_.size());
    }
    for (uint32_t gpu = 0; gpu < sim::kMaxGpus; ++gpu) {
      if (gpus_[gpu].turns != nullptr && RunGpu(gpu, now_ns)) changed = true;
    }
  }
}

void Engine::FindHeads(uint32_t gpu, std::vector<StreamTag*>* heads) {
  heads->clear();
  for (StreamTag* stream : active_) {
    const Command& head = stream->queue.commands.front();
    if (head.needs_gpu() && !head.awaits_order && driver_->GpuOf(stream->context->device) == gpu) {
      heads->push_back(stream);
    }
  }
}

// Estimates how long the ready commands of the streams keep the GPU busy.
uint64_t Engine::EstimateWork(const std::vector<StreamTag*>& heads) {
  double longest = 0, sum = 0;
  for (const StreamTag* stream : heads) {
    const Queue& queue = stream->queue;
    longest = std::max(longest, queue.ready_ns);
    sum += queue.ready_ns * queue.commands.front().share / kWholeGpu;
  }
  return uint64_t(std::ceil(std::max(longest, sum)));
}

// Runs the GPU until now, during turns of this process. True: a command ended.
bool Engine::RunGpu(uint32_t index, uint64_t now_ns) {
  GpuTimeline& gpu = gpus_[index];
  bool ended = false;
  while (true) {
    FindHeads(index, &heads_);
    if (heads_.empty()) {
      if (gpu.simulated_until_ns < gpu.turn.end_ns)
        gpu.turns->GiveBack(&gpu.turn, gpu.simulated_until_ns);
      return ended;
    }
    uint64_t first = kNever;
    for (const StreamTag* stream : heads_) {
      first =
          std::min(first, std::max(stream->queue.commands.front().since_ns, stream->queue.end_ns));
    }
    if (first > gpu.simulated_until_ns && gpu.simulated_until_ns < gpu.turn.end_ns) {
      // No work yet: returns the turn, or lets it pass.
      gpu.turns->GiveBack(&gpu.turn, gpu.simulated_until_ns);
      gpu.simulated_until_ns = std::min(first, gpu.turn.end_ns);
    }
    if (gpu.simulated_until_ns >= gpu.turn.end_ns) {
      gpu.turns->SetUsedUntil(gpu.turn.end_ns);
      gpu.turns->Request(EstimateWork(heads_), std::max(first, gpu.turn.end_ns));
      if (!gpu.turns->Next(now_ns, &gpu.turn)) return ended;
      gpu.simulated_until_ns = std::max(gpu.simulated_until_ns, gpu.turn.start_ns);
      continue;
    }
    const uint64_t until = std::min(gpu.turn.end_ns, now_ns);
    if (gpu.simulated_until_ns >= until) return ended;
    if (Step(&gpu, heads_, until)) ended = true;
    gpu.turns->SetUsedUntil(gpu.simulated_until_ns);
  }
}

// Runs until a command ends or another command begins. True: a command ended.
bool Engine::Step(GpuTimeline* gpu, const std::vector<StreamTag*>& heads, uint64_t until_ns) {
  const auto since = [](const StreamTag* stream) {
    return std::max(stream->queue.commands.front().since_ns, stream->queue.end_ns);
  };
  uint64_t shares = 0;
  for (const StreamTag* stream : heads) {
    if (since(stream) <= gpu->simulated_until_ns)
      shares += stream->queue.commands.front().share;
    else
      until_ns = std::min(until_ns, since(stream));
  }
  const double rate = shares > kWholeGpu ? double(kWholeGpu) / double(shares) : 1.0;
  double span = double(until_ns - gpu->simulated_until_ns);
  for (const StreamTag* stream : heads) {
    if (since(stream) > gpu->simulated_until_ns) continue;
    span = std::min(span, stream->queue.commands.front().remaining_ns / rate);
  }
  const uint64_t end = std::min(until_ns, gpu->simulated_until_ns + uint64_t(std::ceil(span)));
  bool ended = false;
  for (StreamTag* stream : heads) {
    if (since(stream) > gpu->simulated_until_ns) continue;
    Queue& queue = stream->queue;
    const double done =
        std::min(queue.commands.front().remaining_ns, double(end - gpu->simulated_until_ns) * rate);
    queue.commands.front().remaining_ns -= done;
    queue.ready_ns = std::max(0.0, queue.ready_ns - done);
  }
  const uint64_t began = gpu->simulated_until_ns;
  gpu->simulated_until_ns = end;
  for (StreamTag* stream : heads) {
    if (since(stream) > began || stream->queue.commands.front().remaining_ns > kRoundingErrorNs)
      continue;
    Finish(stream, end);
    (void)EndHeadCommands(stream, end);
    ended = true;
  }
  return ended;
}

void Engine::DropStream(StreamTag* stream) {
  Queue& queue = stream->queue;
  for (Command& command : queue.commands) {
    if (command.kind != Kind::kRecord) continue;
    command.ticket->reached = command.ticket->done = true;
    command.ticket->at_ns = sim::MonotonicNs();
    command.ticket->stream = nullptr;
  }
  queue.done += queue.commands.size();
  queue.done_cost_ns = queue.pushed_cost_ns;
  queue.commands.clear();
  queue.ready_commands = 0;
  queue.ready_ns = 0;
  queue.in_host_function = false;
  std::erase(active_, stream);
}

void Engine::DropContext(ContextTag* context, std::unique_lock<std::mutex>* lock) {
  // Waits for effects and functions of the program that run now.
  while (applying_ && due_.front().stream->context == context) {
    lock->unlock();
    sched_yield();
    lock->lock();
  }
  std::erase_if(due_, [&](const DueEffect& due) { return due.stream->context == context; });
  std::erase_if(abandoned_, [&](const auto& stream) {
    if (stream->context != context) return false;
    DropStream(stream.get());
    context->streams.erase(stream.get());
    return true;
  });
  DropStream(&context->legacy);
  for (StreamTag* stream : context->streams) DropStream(stream);
}

uint64_t Engine::OldestOrder() const {
  uint64_t oldest = due_.empty() ? kNever : due_.front().command.order;
  for (const DueEffect& due : due_) oldest = std::min(oldest, due.command.order);
  for (const StreamTag* stream : active_) {
    oldest = std::min(oldest, stream->queue.commands.front().order);
  }
  return oldest;
}

}  // namespace tessera::cuda
