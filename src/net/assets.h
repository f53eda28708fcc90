// SPDX-License-Identifier: Apache-2.0
// Files of a web page that a program contains, compressed with gzip. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/net/http.h"

namespace tessera::net {

struct Asset {
  std::string_view path;  // "/app.js"
  std::string_view content_type;
  std::string_view gzip;  // the compressed content
  std::string_view etag;  // changes with the content: "\"1f3a\"", with the quotes
};

// Null if no asset has this path.
const Asset* FindAsset(std::span<const Asset> assets, std::string_view path);

// Status 304 if the client already has this version, 406 if it does not accept gzip (all browsers
// do), else 200. The response lets clients store the file, but they must revalidate it before each
// use.
Response RespondAsset(const Asset& asset, const Request& request);

// Whether the list of If-None-Match names this tag. Tags are compared weakly (RFC 9110 §13.1.2).
bool MatchesEtag(std::string_view if_none_match, std::string_view etag);
// Whether a client with this Accept-Encoding accepts gzip (RFC 9110 §12.5.3).
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace tessera::net
