// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/net/testing/http2_replay.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

// Fewer than Http2Session::kResetBurst frames fit into this length, so that the limit of resets,
// which depends on the time, never applies.
constexpr size_t kLongestInput = 2500;
constexpr net::ServerLimits kLimits{.max_header_bytes = 512, .max_body_bytes = 256};

constexpr size_t kFrameHeader = 9, kLongestFrame = 16 << 10;
enum FrameType : uint8_t {
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9
};

struct Frames {
  std::vector<uint8_t> types;
  bool whole = true;  // otherwise the bytes end inside a frame, or a frame is too long
};

Frames FramesOf(std::string_view bytes) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
  Frames frames;
  while (!bytes.empty()) {
    if (bytes.size() < kFrameHeader) return {frames.types, false};
    frames.types.push_back(byte(3));
    const size_t size = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
    if (size > kLongestFrame || bytes.size() < kFrameHeader + size) return {frames.types, false};
    bytes.remove_prefix(kFrameHeader + size);
  }
  return frames;
}

bool IsText(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return c == '\0' || c == '\r' || c == '\n'; });
}

void CheckRequest(const net::Request& request) {
  TESSERA_CHECK(!request.method.empty() && IsText(request.method));
  TESSERA_CHECK(request.target.starts_with('/') && IsText(request.target));
  TESSERA_CHECK(request.body.size() <= kLimits.max_body_bytes);
  size_t bytes = 0;
  for (const auto& [name, value] : request.headers) {
    TESSERA_CHECK(!name.empty() && name.front() != ':' && IsText(name) && IsText(value));
    bytes += name.size() + value.size();
  }
  TESSERA_CHECK(bytes <= kLimits.max_header_bytes);
}

std::string TextOf(const net::Request& request) {
  std::string text = fmt::format("{} {}\n", request.method, request.target);
  for (const auto& [name, value] : request.headers) text += fmt::format("{}: {}\n", name, value);
  return text + request.body;
}

std::vector<std::string> TextsOf(const std::vector<net::Request>& requests) {
  std::vector<std::string> texts;
  for (const net::Request& request : requests) texts.push_back(TextOf(request));
  return texts;
}

// Whether no frame of the server rejects a request or ends the connection.
bool RejectsNothing(const std::vector<uint8_t>& frames) {
  return std::ranges::all_of(frames, [](uint8_t type) {
    return type == kSettings || type == kPing || type == kWindowUpdate;
  });
}

}  // namespace

void Http2Server(std::string_view input) {
  static net::IoThread io;
  const std::string_view bytes = input.substr(0, kLongestInput);
  const auto replay = [&](size_t piece) {
    const auto outcome = net::testing::ReplayHttp2(io, kLimits, bytes, piece);
    TESSERA_CHECK(outcome.close_count == 1 && outcome.gone_clients <= outcome.requests.size());
    for (const net::Request& request : outcome.requests) CheckRequest(request);
    TESSERA_CHECK(FramesOf(outcome.early_frames).whole && FramesOf(outcome.late_frames).whole);
    return outcome;
  };
  const auto whole = replay(kLongestInput * 2);
  // Three cases depend on where the pieces end, so their requests are not compared:
  // - The server rejects a request at the end of a piece, which changes which later frames are
  //   errors.
  // - At the end of a piece it closes a connection without requests after the client's GOAWAY.
  // - nghttp2 counts each piece of a CONTINUATION's header as a CONTINUATION, and accepts eight.
  const auto depends_on_pieces = [](uint8_t type) {
    return type == kGoAway || type == kContinuation;
  };
  if (!RejectsNothing(FramesOf(whole.early_frames).types) ||
      std::ranges::any_of(FramesOf(bytes).types, depends_on_pieces)) {
    (void)replay(7);
    return;
  }
  for (const size_t piece : {size_t{1}, size_t{7}}) {
    TESSERA_CHECK(TextsOf(replay(piece).requests) == TextsOf(whole.requests));
  }
}

}  // namespace tessera::fuzz
