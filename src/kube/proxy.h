// SPDX-License-Identifier: Apache-2.0
// Selects the proxy to the API server like kubectl: proxy-url of the kubeconfig, else $HTTPS_PROXY
// unless $NO_PROXY names the server (both also in lower case). Plain HTTP proxies (CONNECT) are
// supported, with the user and password of the URL. Threads: any; pure except for the environment.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "src/base/status.h"
#include "src/net/address.h"

namespace tessera::kube {

// "http://user:password@host:3128" or "host:3128". INVALID_ARGUMENT does not repeat the password.
Result<net::Proxy> ParseProxy(std::string_view text);

// nullopt if the server is reached directly. INVALID_ARGUMENT names the variable.
Result<std::optional<net::Proxy>> ProxyFromEnvironment(
    const std::function<const char*(const char* name)>& getenv, const net::Url& server);

// Whether $NO_PROXY, a list such as "10.0.0.0/8,.cluster.local,example.com:6443" or "*", names the
// server.
bool BypassesProxy(std::string_view no_proxy, const net::Address& server);

}  // namespace tessera::kube
