// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/testing/gpu_model.h"

#include <algorithm>
#include <limits>

namespace tessera::limiter::testing {

int GpuModel::AddContext(int streams, int events) {
  Context context;
  context.streams.resize(size_t(streams));
  context.stamps.assign(size_t(events), kPending);
  contexts_.push_back(std::move(context));
  return int(contexts_.size()) - 1;
}

void GpuModel::Kill(int index) {
  Context& context = contexts_[size_t(index)];
  for (auto& stream : context.streams) stream.clear();
  context.queued = context.busy_streams = 0;
  context.backlog = 0;
}

void GpuModel::Push(int index, int stream, const Command& command) {
  Context& context = contexts_[size_t(index)];
  auto& queue = context.streams[size_t(stream)];
  context.busy_streams += queue.empty();
  context.backlog += command.remaining;
  queue.push_back(command);
}

void GpuModel::Launch(int context, int stream, int64_t length) {
  ++contexts_[size_t(context)].queued;
  Push(context, stream, {length, -1});
}

// Start events have even numbers. The end event takes the cost of the pair.
void GpuModel::Record(int context, int stream, int event) {
  contexts_[size_t(context)].stamps[size_t(event)] = kPending;
  int64_t cost = 0;
  if (event % 2 != 0) {
    cost = options_.event_cost - options_.event_spread +
           int64_t(random_() % uint64_t(2 * options_.event_spread + 1));
  }
  if (options_.early_stamps && contexts_[size_t(context)].streams[size_t(stream)].empty()) {
    contexts_[size_t(context)].stamps[size_t(event)] = now_ + cost;
    return;
  }
  Push(context, stream, {cost, event});
}

// Gives the turn to the next context with work.
bool GpuModel::NextTurn() {
  const int count = int(contexts_.size());
  for (int step = 1; step <= count; ++step) {
    const int next = (current_ + step + count) % count;
    if (contexts_[size_t(next)].busy_streams == 0) continue;
    if (next != current_) switch_left_ = options_.switch_cost;
    current_ = next;
    turn_end_ = now_ + switch_left_ + options_.quantum;
    return true;
  }
  return false;
}

bool GpuModel::EndCommand(Context* context, std::deque<Command>* stream) {
  const Command command = stream->front();
  stream->pop_front();
  context->busy_streams -= stream->empty();
  if (command.event >= 0) {
    context->stamps[size_t(command.event)] = now_;
    return context->watched && context->busy_streams == 0;
  }
  --context->queued;
  return context->watched;
}

bool GpuModel::RunTurn(int64_t until) {
  if (switch_left_ > 0) {
    const int64_t step = std::min(switch_left_, until - now_);
    switch_left_ -= step;
    now_ += step;
    if (switch_left_ > 0) return false;
  }
  Context& context = contexts_[size_t(current_)];
  const int64_t end = std::min(until, turn_end_);
  while (context.busy_streams > 0) {
    int64_t shortest = std::numeric_limits<int64_t>::max();
    for (const auto& stream : context.streams) {
      if (!stream.empty()) shortest = std::min(shortest, stream.front().remaining);
    }
    const int64_t streams = context.busy_streams;
    const int64_t step = std::min(shortest, (end - now_) / streams);
    const bool interrupted = step < shortest;
    now_ += step * streams;
    context.used += step * streams;
    context.backlog -= step * streams;
    bool watched = false;
    for (auto& stream : context.streams) {
      if (stream.empty()) continue;
      stream.front().remaining -= step;
      if (stream.front().remaining == 0) watched |= EndCommand(&context, &stream);
    }
    if (interrupted) {
      context.used += end - now_;  // less than one nanosecond for each stream
      now_ = end;
      return watched;
    }
    if (watched) return true;
  }
  return false;
}

void GpuModel::RunUntil(int64_t time) {
  while (now_ < time) {
    const bool runs = current_ >= 0 && contexts_[size_t(current_)].busy_streams > 0;
    if ((!runs || now_ >= turn_end_) && !NextTurn()) {
      now_ = time;
      return;
    }
    if (RunTurn(time)) return;
  }
}

}  // namespace tessera::limiter::testing
