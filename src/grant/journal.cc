// SPDX-License-Identifier: Apache-2.0
#include "src/grant/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

namespace tessera::grant {
namespace {

constexpr std::string_view kMagic = "TSRJNL1\n";
constexpr size_t kHeaderSize = 8;
constexpr uint64_t kMinReserveBytes = 64 << 10;
// Room for about 300 grants, so that only one flush in 300 extends the file.
constexpr uint64_t kPreallocateBytes = 128 << 10;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

void PutU32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<char>(value >> shift & 0xff));
}

uint32_t GetU32(std::string_view data) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i)
    value |= static_cast<uint32_t>(static_cast<uint8_t>(data[i])) << (8 * i);
  return value;
}

std::string Encode(std::string_view payload) {
  std::string record;
  record.reserve(kHeaderSize + payload.size());
  PutU32(record, static_cast<uint32_t>(payload.size()));
  const uint32_t crc = Crc32c(payload, Crc32c(record));
  PutU32(record, crc);
  record.append(payload);
  return record;
}

// The payload of the record at the start of `data`; nullopt if it is incomplete or its CRC differs.
std::optional<std::string_view> Decode(std::string_view data) {
  if (data.size() < kHeaderSize) return std::nullopt;
  const uint32_t length = GetU32(data);
  if (length == 0 || length > Journal::kMaxRecordSize || length > data.size() - kHeaderSize) {
    return std::nullopt;
  }
  const std::string_view payload = data.substr(kHeaderSize, length);
  if (Crc32c(payload, Crc32c(data.substr(0, 4))) != GetU32(data.substr(4))) return std::nullopt;
  return payload;
}

// Offset of the next valid record at or after `from`; npos if no record follows.
size_t FindRecord(std::string_view data, size_t from) {
  for (size_t at = from; at + kHeaderSize <= data.size(); ++at) {
    if (Decode(data.substr(at)).has_value()) return at;
  }
  return std::string_view::npos;
}

struct Scan {
  Journal::Recovery recovery;
  uint64_t good_end = 0;
};

Scan ScanFile(std::string_view data) {
  Scan scan;
  size_t at = kMagic.size();
  if (data.substr(0, kMagic.size()) != kMagic) {
    // A crash interrupted the creation of the file, or it is not a journal.
    const size_t next = FindRecord(data, 0);
    if (next == std::string_view::npos && kMagic.substr(0, data.size()) == data) {
      scan.recovery.torn_bytes = data.size();
      return scan;
    }
    at = next == std::string_view::npos ? data.size() : next;
    scan.recovery.damaged_bytes = at;
    scan.recovery.damage = "the file does not start like a journal";
  }
  scan.good_end = at;
  while (at < data.size()) {
    if (const auto payload = Decode(data.substr(at))) {
      scan.recovery.records.emplace_back(*payload);
      at += kHeaderSize + payload->size();
      scan.good_end = at;
      continue;
    }
    const size_t next = FindRecord(data, at + 1);
    if (next == std::string_view::npos) {
      const size_t last = data.find_last_not_of('\0');
      if (last != std::string_view::npos && last >= at) scan.recovery.torn_bytes = last + 1 - at;
      break;
    }
    scan.recovery.damaged_bytes += next - at;
    if (scan.recovery.damage.empty()) {
      scan.recovery.damage = "no valid record at offset " + std::to_string(at);
    }
    at = next;
  }
  return scan;
}

// Replace writes the new list into this file and renames it to `name`.
std::string NewFileName(const std::string& name) { return name + ".new"; }
constexpr int kNewFileFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;

Status WriteAt(int fd, std::string_view data, uint64_t offset) {
  while (!data.empty()) {
    const ssize_t count = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::FromErrno("write", errno);
    data.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return Status::Ok();
}

Status SyncData(int fd) {
  if (::fdatasync(fd) != 0) return Status::FromErrno("fdatasync", errno);
  return Status::Ok();
}

}  // namespace

uint32_t Crc32c(std::string_view data, uint32_t seed) {
  uint32_t crc = ~seed;
  for (const char c : data) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

Result<Journal> Journal::Open(DirFd dir, std::string name, Recovery* recovery) {
  *recovery = {};
  Journal journal(std::move(dir), std::move(name));
  const std::string path = JoinPath(journal.dir_.path(), journal.name_);
  RETURN_IF_ERROR(journal.OpenFile().Annotate(path));
  ASSIGN_OR_RETURN(const std::string data, ReadFd(journal.fd_.get(), kMaxFileSize).Annotate(path));
  Scan scan = ScanFile(data);
  *recovery = std::move(scan.recovery);
  journal.size_ = scan.good_end;
  journal.file_size_ = data.size();
  if (scan.good_end == 0) {
    // The file is new, or a crash cut it off before its first record.
    RETURN_IF_ERROR(journal.Replace({}).Annotate(path));
  } else if (recovery->damaged_bytes > 0) {
    const std::string damaged_name = journal.name_ + ".damaged";
    if (::renameat(journal.dir_.get(), journal.name_.c_str(), journal.dir_.get(),
                   damaged_name.c_str()) != 0) {
      return Status::FromErrno("keeping " + path + " aside", errno);
    }
    RETURN_IF_ERROR(journal.Replace(recovery->records).Annotate(path));
  } else if (recovery->torn_bytes > 0) {
    RETURN_IF_ERROR(journal.TruncateTo(scan.good_end).Annotate(path));
    RETURN_IF_ERROR(SyncData(journal.fd_.get()).Annotate(path));
  }
  journal.ReserveSpaceForReplace();
  return journal;
}

Status Journal::OpenFile() {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  fd_.Reset(::openat(dir_.get(), name_.c_str(), kFlags, 0600));
  return fd_.valid() ? Status::Ok() : Status::FromErrno("open", errno);
}

Status Journal::TruncateTo(uint64_t size) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) {
    return Status::FromErrno("ftruncate", errno);
  }
  size_ = file_size_ = size;
  return Status::Ok();
}

// Writes zeros instead of calling fallocate(2), whose blocks are marked as unwritten: the first
// write to each would change metadata, which fdatasync must flush, too. Best effort: a full disk
// may still have space for the record without zeros.
void Journal::Preallocate(size_t bytes) {
  if (size_ + bytes <= file_size_) return;
  const std::string zeros(size_ + bytes + kPreallocateBytes - file_size_, '\0');
  if (WriteAt(fd_.get(), zeros, file_size_).ok()) {
    file_size_ += zeros.size();
  } else {
    (void)!::ftruncate(fd_.get(),
                       static_cast<off_t>(file_size_));  // frees the blocks of a partial write
  }
}

Status Journal::Append(std::string_view record) {
  RETURN_IF_ERROR(AppendUnsynced(record));
  const Status synced = SyncData(fd_.get());
  // The kernel reports a failed write-back once and then counts the pages as clean
  // (file_check_and_advance_wb_err in mm/filemap.c), so a second fdatasync would succeed without
  // the data.
  if (!synced.ok()) state_unknown_ = true;
  return synced.Annotate(JoinPath(dir_.path(), name_));
}

Status Journal::AppendUnsynced(std::string_view record) {
  if (state_unknown_) {
    return Error(Code::kFailedPrecondition, "{}: its state is unknown after a failed write",
                 JoinPath(dir_.path(), name_));
  }
  if (record.empty() || record.size() > kMaxRecordSize) {
    return Error(Code::kResourceExhausted, "invalid record size {}: want 1 to {}", record.size(),
                 kMaxRecordSize);
  }
  const std::string encoded = Encode(record);
  Preallocate(encoded.size());
  const Status written = WriteAt(fd_.get(), encoded, size_);
  if (!written.ok()) {
    // Removes a partly written record, so that the next record does not follow garbage.
    if (!TruncateTo(size_).ok()) state_unknown_ = true;
    return written.Annotate(JoinPath(dir_.path(), name_));
  }
  size_ += encoded.size();
  file_size_ = std::max(file_size_, size_);
  return Status::Ok();
}

Status Journal::Replace(const std::vector<std::string>& records) {
  const std::string temporary = NewFileName(name_);
  std::string data(kMagic);
  for (const std::string& record : records) data += Encode(record);
  const auto write_new = [&]() -> Status {
    // The file is truncated only after the write, because truncation frees the reserved blocks.
    const Fd fd(::openat(dir_.get(), temporary.c_str(), kNewFileFlags, 0600));
    if (!fd.valid()) return Status::FromErrno(temporary, errno);
    RETURN_IF_ERROR(WriteFd(fd.get(), data));
    if (::ftruncate(fd.get(), static_cast<off_t>(data.size())) != 0) {
      return Status::FromErrno("ftruncate", errno);
    }
    if (::fsync(fd.get()) != 0) return Status::FromErrno("fsync", errno);
    if (::renameat(dir_.get(), temporary.c_str(), dir_.get(), name_.c_str()) != 0) {
      return Status::FromErrno("rename", errno);
    }
    return Status::Ok();
  };
  RETURN_IF_ERROR(write_new().Annotate(JoinPath(dir_.path(), name_)));
  // From here on `name` is the new file, but fd_ is still the old one.
  state_unknown_ = true;
  RETURN_IF_ERROR(OpenFile());
  size_ = file_size_ = data.size();
  Preallocate(1);
  if (::fsync(dir_.get()) != 0) return Status::FromErrno("fsync of the directory", errno);
  state_unknown_ = false;
  ReserveSpaceForReplace();
  return Status::Ok();
}

void Journal::ReserveSpaceForReplace() const {
  const Fd fd(::openat(dir_.get(), NewFileName(name_).c_str(), kNewFileFlags, 0600));
  if (!fd.valid()) return;
  const auto size = static_cast<off_t>(std::max(size_, kMinReserveBytes));
  (void)::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, size);
}

}  // namespace tessera::grant
