// SPDX-License-Identifier: Apache-2.0
// For tests: writes protobuf messages and the API server's frames.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::kube::testing {

class WireWriter {
 public:
  WireWriter& Bytes(uint32_t field, std::string_view bytes) {
    Number(field << 3 | 2);
    Number(bytes.size());
    out_.append(bytes);
    return *this;
  }
  WireWriter& Varint(uint32_t field, uint64_t value) {
    Number(field << 3);
    Number(value);
    return *this;
  }
  // An entry of map<string, string>.
  WireWriter& Entry(uint32_t field, std::string_view key, std::string_view value) {
    return Bytes(field, WireWriter().Bytes(1, key).Bytes(2, value).text());
  }
  const std::string& text() const { return out_; }

 private:
  void Number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  std::string out_;
};

// Wraps a message in Kubernetes' envelope: "k8s\0" and runtime.Unknown.
inline std::string Enveloped(std::string_view kind, std::string_view message) {
  const std::string type = WireWriter().Bytes(1, "v1").Bytes(2, kind).text();
  return std::string("k8s\0", 4) + WireWriter().Bytes(1, type).Bytes(2, message).text();
}

// One watch event: its length in four bytes, then WatchEvent of meta.k8s.io.
inline std::string WatchFrame(std::string_view type, std::string_view kind,
                              std::string_view message) {
  const std::string object = WireWriter().Bytes(1, Enveloped(kind, message)).text();
  const std::string event = WireWriter().Bytes(1, type).Bytes(2, object).text();
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8) {
    frame.push_back(static_cast<char>(event.size() >> shift));
  }
  return frame + event;
}

}  // namespace tessera::kube::testing
