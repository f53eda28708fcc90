// SPDX-License-Identifier: Apache-2.0
#include "src/formats/wire_reader.h"

namespace tessera {

bool WireReader::Fail(const char* why) {
  error_ = why;
  return false;
}

bool WireReader::ReadVarint(uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == message_.size()) return Fail("ends in the middle of a number");
    const auto byte = static_cast<uint8_t>(message_[at_++]);
    // Drops bits beyond 64, like all decoders.
    result |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = result;
      return true;
    }
  }
  return Fail("a number is longer than ten bytes");
}

bool WireReader::ReadBytes(uint64_t size) {
  if (size > message_.size() - at_) return Fail("a field is longer than its message");
  bytes_ = message_.substr(at_, size);
  at_ += size;
  return true;
}

bool WireReader::Next() {
  if (error_ != nullptr || at_ == message_.size()) return false;
  uint64_t tag = 0;
  if (!ReadVarint(&tag)) return false;
  if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return Fail("a field has an invalid number");
  field_ = static_cast<uint32_t>(tag >> 3);
  type_ = static_cast<Type>(tag & 7);
  switch (type_) {
    case Type::kVarint:
      return ReadVarint(&varint_);
    case Type::kFixed64:
      return ReadBytes(8);
    case Type::kFixed32:
      return ReadBytes(4);
    case Type::kBytes: {
      uint64_t size = 0;
      return ReadVarint(&size) && ReadBytes(size);
    }
  }
  return Fail("a field has an unknown type");
}

std::string_view WireReader::Bytes() {
  if (error_ == nullptr && type_ == Type::kBytes) return bytes_;
  if (error_ == nullptr) Fail("a field holds a number, not bytes");
  return {};
}

uint64_t WireReader::Varint() {
  if (error_ == nullptr && type_ == Type::kVarint) return varint_;
  if (error_ == nullptr) Fail("a field holds bytes, not a number");
  return 0;
}

Status WireReader::status() const {
  if (error_ == nullptr) return Status::Ok();
  return Error(Code::kInvalidArgument, "not protobuf: {} (field {}, byte {})", error_, field_, at_);
}

}  // namespace tessera
