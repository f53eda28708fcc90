// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. The socket type that connector.cc, listener.cc and transport.cc share.
#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include "src/net/io_thread_impl.h"
#include "src/net/transport.h"

namespace tessera::net {

// For TCP and unix sockets; the concrete executor type avoids Asio's type erasure in each
// operation.
using Socket =
    asio::basic_stream_socket<asio::generic::stream_protocol, asio::io_context::executor_type>;

TransportPtr MakePlainTransport(Socket socket);

}  // namespace tessera::net
