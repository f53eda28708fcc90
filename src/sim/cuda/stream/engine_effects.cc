// SPDX-License-Identifier: Apache-2.0
// The part of the engine that acts on the process: effects on memory, waiting threads, and the
// worker.
#include <sched.h>

#include <algorithm>
#include <thread>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/futex.h"

namespace tessera::cuda {
namespace {

using Kind = Command::Kind;

constexpr uint64_t kLongestSleepNs = 10'000'000;  // maximum delay to notice a lost GPU
constexpr uint64_t kSpinNs = 10'000;              // shorter sleeps only yield
constexpr size_t kQueueDepth = 1024;              // maximum of queued commands
constexpr size_t kCommandsToDrain = 128;
constexpr int kMaxDepth = 8;  // depth of streams that wait for streams

}  // namespace

void Engine::MarkDone(DueEffect* due) {
  Queue& queue = due->stream->queue;
  ++queue.done;
  if (due->command.ticket != nullptr && due->command.kind == Kind::kRecord) {
    due->command.ticket->done = true;
  }
  if (due->command.error != Result::kSuccess) due->stream->context->error = due->command.error;
}

// Carries out effects in the order in which commands ended. Only the worker runs host functions,
// because they may wait for locks that the calling thread holds.
void Engine::Apply(std::unique_lock<std::mutex>* lock, bool host_functions) {
  bool any = false;
  while (!applying_ && !due_.empty()) {
    DueEffect& due = due_.front();
    const bool host = due.command.kind == Kind::kHost;
    if (host && !host_functions) {
      work_.fetch_add(1);
      sim::FutexWakeAll(&work_);
      break;
    }
    if (due.command.effect) {
      applying_ = true;
      lock->unlock();
      due.command.effect();
      lock->lock();
      applying_ = false;
    }
    StreamTag* stream = due.stream;
    if (!host) MarkDone(&due);
    due_.pop_front();
    if (host) EndHostFunction(stream);
    any = true;
  }
  if (any && sleepers_ != 0) {
    progress_.fetch_add(1);
    sim::FutexWakeAll(&progress_);
  }
  if (!any) return;
  driver_->UnmapPending();
  std::erase_if(abandoned_, [](const auto& stream) {
    const bool idle = stream->queue.idle();
    if (idle) stream->context->streams.erase(stream.get());
    return idle;
  });
}

// Removes the host function at the head of the stream, unless the stream was dropped meanwhile.
void Engine::EndHostFunction(StreamTag* stream) {
  Queue& queue = stream->queue;
  if (!queue.in_host_function) return;
  queue.in_host_function = false;
  const uint64_t now = sim::MonotonicNs();
  Finish(stream, now);
  Simulate(now);
}

void Engine::Abandon(std::unique_ptr<StreamTag> stream) {
  if (stream->queue.idle())
    stream->context->streams.erase(stream.get());
  else
    abandoned_.push_back(std::move(stream));
}

void Engine::Advance(std::unique_lock<std::mutex>* lock) {
  Simulate(sim::MonotonicNs());
  Apply(lock, /*host_functions=*/false);
}

// A lower bound of the time at which `cost_ns` at the head of the stream is done.
uint64_t Engine::EarliestEnd(StreamTag* stream, double cost_ns, uint64_t now_ns, int depth) {
  Queue& queue = stream->queue;
  if (queue.commands.empty() || depth == 0) return now_ns;
  const Command& head = queue.commands.front();
  if (queue.in_host_function) return now_ns + kLongestSleepNs;  // the worker wakes sleepers
  if (head.awaits_order) {
    uint64_t latest = now_ns;
    const auto wait_for = [&](StreamTag* other) {
      if (!other->queue.commands.empty() && other->queue.commands.front().order < head.order) {
        const Command& first = other->queue.commands.front();
        latest = std::max(latest, EarliestEnd(other, first.remaining_ns, now_ns, depth - 1));
      }
    };
    if (!stream->is_legacy())
      wait_for(&stream->context->legacy);
    else
      for (StreamTag* other : stream->context->streams)
        if (other->is_blocking()) wait_for(other);
    return std::max(latest, now_ns + uint64_t(cost_ns));
  }
  if (head.kind == Kind::kWait && !head.ticket->reached) {
    return EarliestDone(*head.ticket, now_ns, depth - 1) + uint64_t(cost_ns);
  }
  if (head.kind == Kind::kTransfer) {
    const uint64_t end = std::max(head.since_ns, queue.end_ns) + uint64_t(head.remaining_ns);
    return std::max(end, now_ns) + uint64_t(std::max(0.0, cost_ns - head.remaining_ns));
  }
  if (!head.needs_gpu()) return now_ns + uint64_t(cost_ns);
  const double on_gpu = std::min(cost_ns, queue.ready_ns);
  return TimelineOf(stream).turns->EarliestEnd(now_ns, uint64_t(on_gpu)) +
         uint64_t(cost_ns - on_gpu);
}

uint64_t Engine::EarliestDone(const Ticket& ticket, uint64_t now_ns, int depth) {
  // A ticket without a stream is for a record of another process; MarkReached wakes sleepers.
  if (ticket.stream == nullptr) return ticket.reached ? now_ns : now_ns + kLongestSleepNs;
  const Queue& queue = ticket.stream->queue;
  const double used = queue.commands.empty()
                          ? 0
                          : queue.commands.front().cost_ns - queue.commands.front().remaining_ns;
  const double cost = ticket.cost_before_ns - queue.done_cost_ns - used;
  return EarliestEnd(ticket.stream, std::max(0.0, cost), now_ns, depth);
}

void Engine::Sleep(std::unique_lock<std::mutex>* lock, const Ticket& ticket) {
  const uint64_t now = sim::MonotonicNs();
  const bool others_work = applying_ || !due_.empty();
  uint64_t until = others_work ? now + kLongestSleepNs : EarliestDone(ticket, now, kMaxDepth);
  until = std::min(until, now + kLongestSleepNs);
  const uint32_t seen = progress_.load();
  ++sleepers_;
  lock->unlock();
  if (until < now + kSpinNs)
    sched_yield();
  else
    sim::FutexWait(&progress_, seen, until - now);
  lock->lock();
  --sleepers_;
}

void Engine::WaitForRoom(StreamTag* stream, std::unique_lock<std::mutex>* lock) {
  while (driver_->IsStream(stream) && stream->queue.commands.size() >= kQueueDepth) {
    Advance(lock);
    if (!driver_->IsStream(stream) || stream->queue.commands.size() < kQueueDepth) return;
    // Sleeps until several commands are done: waking for each would cost too much CPU time.
    double cost = 0;
    for (size_t i = 0; i < kCommandsToDrain; ++i) cost += stream->queue.commands[i].remaining_ns;
    Ticket room{.stream = stream, .cost_before_ns = stream->queue.done_cost_ns + cost};
    Sleep(lock, room);
  }
}

// Wakes the worker if it sleeps longer than the stream's commands may take.
void Engine::WakeWorker(StreamTag* stream) {
  if (!worker_started_) StartWorker();
  const uint64_t now = sim::MonotonicNs();
  const Queue& queue = stream->queue;
  if (EarliestEnd(stream, queue.pushed_cost_ns - queue.done_cost_ns, now, kMaxDepth) >=
      worker_sleeps_until_ns_) {
    return;
  }
  work_.fetch_add(1);
  sim::FutexWakeAll(&work_);
}

void Engine::StartWorker() {
  worker_started_ = true;
  std::thread([this] { RunWorker(); }).detach();
}

// The earliest end of a command that needs the worker.
uint64_t Engine::NextWorkerDeadline(uint64_t now_ns) {
  uint64_t next = kNever;
  for (StreamTag* stream : active_) {
    double cost = 0;
    for (const Command& command : stream->queue.commands) {
      cost += command.remaining_ns;
      if (!command.needs_worker()) continue;
      next = std::min(next, EarliestEnd(stream, cost, now_ns, kMaxDepth));
      break;
    }
  }
  return next;
}

void Engine::RunWorker() {
  std::unique_lock lock(driver_->mutex());
  while (true) {
    const uint64_t now = sim::MonotonicNs();
    Simulate(now);
    Apply(&lock, /*host_functions=*/true);
    const uint64_t next = std::max(NextWorkerDeadline(now), now + kSpinNs);
    const uint32_t seen = work_.load();
    worker_sleeps_until_ns_ = next;
    lock.unlock();
    sim::FutexWait(&work_, seen, next == kNever ? UINT32_MAX : next - now);
    lock.lock();
    worker_sleeps_until_ns_ = 0;
  }
}

}  // namespace tessera::cuda
