// SPDX-License-Identifier: Apache-2.0
#include "src/cli/sysdump/archive.h"

#include <zlib.h>

#include <cstring>
#include <optional>

namespace tessera::cli {
namespace {

constexpr size_t kBlock = 512;
constexpr int kGzip = 16 + MAX_WBITS;  // tells zlib to write a gzip header

constexpr size_t kMaxNameField = 100;
constexpr size_t kMaxPrefixField = 155;

// The two fields of a name in a header.
struct SplitName {
  std::string_view prefix, name;
};

// nullopt: the name does not fit.
std::optional<SplitName> SplitPath(std::string_view name) {
  if (name.size() <= kMaxNameField) return SplitName{"", name};
  const size_t slash = name.find('/', name.size() - kMaxNameField - 1);
  if (slash == std::string_view::npos || slash > kMaxPrefixField) return std::nullopt;
  return SplitName{name.substr(0, slash), name.substr(slash + 1)};
}

// A header of POSIX ustar. Fields by offset: name 0, mode 100, uid 108, gid 116, size 124, mtime
// 136, checksum 148, type 156, magic 257, prefix 345.
Result<std::string> HeaderOf(const ArchiveFile& file, int64_t mtime) {
  const std::optional<SplitName> split = SplitPath(file.name);
  if (!split) {
    return Error(Code::kInvalidArgument, "the name {} does not fit into an archive", file.name);
  }
  std::string header(kBlock, '\0');
  const auto put = [&](size_t at, std::string_view text) { header.replace(at, text.size(), text); };
  put(0, split->name);
  put(100, "0000600");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", file.text.size()));
  put(136, fmt::format("{:011o}", mtime));
  put(148, "        ");
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  put(345, split->prefix);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header;
}

Result<std::string> Compress(const std::string& data) {
  z_stream stream{};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return Error(Code::kInternal, "zlib cannot start: no memory");
  }
  std::string packed(::deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = data.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  const int code = ::deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  if (code != Z_STREAM_END) return Error(Code::kInternal, "zlib cannot compress: {}", code);
  return packed;
}

}  // namespace

bool FitsInArchive(std::string_view name) { return SplitPath(name).has_value(); }

Result<std::string> TarGz(const std::vector<ArchiveFile>& files, int64_t mtime) {
  std::string tar;
  for (const ArchiveFile& file : files) {
    ASSIGN_OR_RETURN(const std::string header, HeaderOf(file, mtime));
    tar += header;
    tar += file.text;
    tar.append((kBlock - file.text.size() % kBlock) % kBlock, '\0');
  }
  tar.append(2 * kBlock, '\0');
  return Compress(tar);
}

}  // namespace tessera::cli
