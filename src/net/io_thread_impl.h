// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. The part of the IoThread that uses Asio. Only connector.cc,
// io_thread.cc, listener.cc and transport.cc include it, because each inclusion costs seconds of
// build time.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>

#include "src/base/status.h"
#include "src/net/io_thread.h"

namespace tessera::net {

namespace asio = boost::asio;

struct IoThread::Impl {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
};

// CANCELLED for an aborted operation, else UNAVAILABLE with the system's message.
Status FromErrorCode(std::string_view operation, const boost::system::error_code& error);

}  // namespace tessera::net
