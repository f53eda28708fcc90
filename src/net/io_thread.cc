// SPDX-License-Identifier: Apache-2.0
#include "src/net/io_thread.h"

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>

#include "src/net/io_thread_impl.h"

namespace tessera::net {

IoThread::IoThread(const std::string& name) : impl_(std::make_unique<Impl>()) {
  // The main thread handles signals.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  impl_->thread = std::thread([this] { impl_->context.run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(impl_->thread.native_handle(), name.substr(0, 15).c_str());
}

IoThread::~IoThread() {
  // Runs after the tasks that servers and clients posted in their destructors.
  Post([this] { impl_->context.stop(); });
  impl_->thread.join();
}

void IoThread::Post(std::function<void()> task) { asio::post(impl_->context, std::move(task)); }

using SteadyTimer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                               asio::wait_traits<std::chrono::steady_clock>,
                                               asio::io_context::executor_type>;

struct Timer::State {
  explicit State(asio::io_context& context) : timer(context) {}
  SteadyTimer timer;
  // The number of the current deadline. Cancelled waits may still be in the queue.
  uint64_t deadline_number = 0;
};

Timer::Timer(IoThread& io) : state_(std::make_shared<State>(io.impl().context)) {}

Timer::~Timer() { Stop(); }

void Timer::Start(Duration delay, std::function<void()> on_due) {
  state_->timer.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(delay));
  state_->timer.async_wait([state = state_, deadline_number = ++state_->deadline_number,
                            on_due = std::move(on_due)](const boost::system::error_code& error) {
    if (!error && state->deadline_number == deadline_number) on_due();
  });
}

void Timer::Stop() {
  ++state_->deadline_number;
  state_->timer.cancel();
}

Status FromErrorCode(std::string_view operation, const boost::system::error_code& error) {
  const Code code = error == asio::error::operation_aborted ? Code::kCancelled : Code::kUnavailable;
  return Error(code, "{}: {}", operation, error.message());
}

}  // namespace tessera::net
