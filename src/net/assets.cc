// SPDX-License-Identifier: Apache-2.0
#include "src/net/assets.h"

#include <algorithm>

#include "src/base/strings.h"

namespace tessera::net {
namespace {

std::string_view WithoutWeakMark(std::string_view tag) {
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  return tag;
}

// Whether the parameter is "q=0", "q=0.0" and so on: the client does not accept the coding.
bool IsZeroWeight(std::string_view parameter) {
  parameter = Trim(parameter);
  if (!parameter.starts_with("q=") && !parameter.starts_with("Q=")) return false;
  return parameter.find_first_not_of("0.", 2) == std::string_view::npos;
}

}  // namespace

const Asset* FindAsset(std::span<const Asset> assets, std::string_view path) {
  const auto found = std::ranges::find(assets, path, &Asset::path);
  return found == assets.end() ? nullptr : &*found;
}

bool MatchesEtag(std::string_view if_none_match, std::string_view etag) {
  return std::ranges::any_of(SplitList(if_none_match), [&](std::string_view tag) {
    return tag == "*" || WithoutWeakMark(tag) == WithoutWeakMark(etag);
  });
}

bool AcceptsGzip(std::string_view accept_encoding) {
  bool wildcard_accepted = false;
  for (const std::string_view coding : SplitList(accept_encoding)) {
    const auto parts = Split(coding, ';');
    const std::string name = ToLower(Trim(parts[0]));
    const bool accepted = std::none_of(parts.begin() + 1, parts.end(), IsZeroWeight);
    if (name == "gzip" || name == "x-gzip") return accepted;
    if (name == "*") wildcard_accepted = accepted;
  }
  return wildcard_accepted;
}

Response RespondAsset(const Asset& asset, const Request& request) {
  Response response;
  if (!AcceptsGzip(request.headers.Get("Accept-Encoding"))) {
    response = TextResponse(406,
                            "this file is sent only with gzip: accept gzip, for example with "
                            "curl --compressed\n");
  } else if (MatchesEtag(request.headers.Get("If-None-Match"), asset.etag)) {
    response.status = 304;
  } else {
    response.headers = {{"Content-Type", std::string(asset.content_type)},
                        {"Content-Encoding", "gzip"}};
    response.body = asset.gzip;
  }
  response.headers.Add("Vary", "Accept-Encoding");
  if (response.status == 406) return response;
  response.headers.Add("ETag", std::string(asset.etag));
  response.headers.Add("Cache-Control", "no-cache");
  return response;
}

}  // namespace tessera::net
