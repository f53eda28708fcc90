// SPDX-License-Identifier: Apache-2.0
// Reads one protobuf message field by field, without a schema and without copies: strings are views
// into the message. For decoders that need a few fields of large messages.
//
//   WireReader reader(message);
//   while (reader.Next()) {
//     if (reader.field() == 1) name = reader.Bytes();
//     if (reader.field() == 7) count = reader.Int();
//   }
//   return reader.status();
//
// Does not support packed repeated fields. Rejects groups, which only proto2 has. Threads: one.
// Ownership: the message must outlive the reader and its views. Errors: Next returns false and
// status() INVALID_ARGUMENT with the offset. Cost: no allocation.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/base/status.h"

namespace tessera {

class WireReader {
 public:
  explicit WireReader(std::string_view message) : message_(message) {}

  // Moves to the next field; a field that is not read is skipped.
  bool Next();
  uint32_t field() const { return field_; }

  // The value of the current field. If the field has another type, the result is empty or 0, and
  // status() an error.
  std::string_view Bytes();
  uint64_t Varint();
  int64_t Int() { return static_cast<int64_t>(Varint()); }
  bool Bool() { return Varint() != 0; }

  // OK at the end of a well-formed message.
  Status status() const;

 private:
  enum class Type : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  bool ReadVarint(uint64_t* value);
  bool ReadBytes(uint64_t size);
  bool Fail(const char* why);

  std::string_view message_;
  size_t at_ = 0;
  uint32_t field_ = 0;
  Type type_ = Type::kVarint;
  uint64_t varint_ = 0;
  std::string_view bytes_;
  const char* error_ = nullptr;
};

}  // namespace tessera
