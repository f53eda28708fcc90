// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. The part of the IoThread that uses Asio, and the type of its sockets.
// Only connector.cc, io_thread.cc, listener.cc and transport.cc include it, because each inclusion
// costs seconds of build time.
#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>

#include "src/base/status.h"
#include "src/net/io_thread.h"
#include "src/net/transport.h"

namespace tessera::net {

namespace asio = boost::asio;

struct IoThread::Impl {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::thread thread;
};

// For TCP and unix sockets; the concrete executor type avoids Asio's type erasure in each
// operation.
using Socket =
    asio::basic_stream_socket<asio::generic::stream_protocol, asio::io_context::executor_type>;

TransportPtr MakePlainTransport(Socket socket);

// CANCELLED for an aborted operation, else UNAVAILABLE with the system's message.
Status FromErrorCode(std::string_view operation, const boost::system::error_code& error);

}  // namespace tessera::net
