// SPDX-License-Identifier: Apache-2.0
#include "src/oci/elf.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace tessera::oci {
namespace {

constexpr size_t kMaxProgramHeaders = 512;
constexpr size_t kMaxDynamicEntries = 4096;
constexpr size_t kMaxSonameLength = 255;

Status BadElf(std::string_view problem) { return Error(Code::kInvalidArgument, "{}", problem); }

// Reads at offsets. The first read covers the headers, and small files completely: a container
// start reads all the driver's libraries, so each read counts.
class ElfFile {
 public:
  static Result<ElfFile> Open(int fd) {
    struct stat info;
    if (::fstat(fd, &info) != 0) return Status::FromErrno("fstat", errno);
    ElfFile file(fd, static_cast<uint64_t>(info.st_size));
    const size_t size = std::min<uint64_t>(file.size_, file.head_.size());
    RETURN_IF_ERROR(file.ReadFrom(0, file.head_.data(), size));
    file.head_size_ = size;
    return file;
  }

  uint64_t size() const { return size_; }

  bool Inside(uint64_t offset, uint64_t length) const {
    return offset <= size_ && length <= size_ - offset;
  }

  Status ReadAt(uint64_t offset, void* data, size_t size) const {
    if (offset > head_size_ || size > head_size_ - offset) return ReadFrom(offset, data, size);
    if (size > 0) std::memcpy(data, head_.data() + offset, size);
    return Status::Ok();
  }

 private:
  ElfFile(int fd, uint64_t size) : fd_(fd), size_(size) {}

  Status ReadFrom(uint64_t offset, void* data, size_t size) const {
    auto* to = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t count = ::pread(fd_, to, size, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Status::FromErrno("read", errno);
      if (count == 0) return BadElf("ends in the middle of an ELF structure");
      to += count;
      offset += static_cast<uint64_t>(count);
      size -= static_cast<size_t>(count);
    }
    return Status::Ok();
  }

  int fd_;
  uint64_t size_;
  size_t head_size_ = 0;
  std::array<char, 1024> head_;
};

// The algorithm is the same for 32 and 64 bits. The types are the ELF structures of one of these.
template <typename Ehdr, typename Phdr, typename Dyn>
class ElfWalker {
 public:
  explicit ElfWalker(const ElfFile& file) : file_(file) {}

  Result<ElfInfo> Walk() {
    Ehdr header;
    RETURN_IF_ERROR(file_.ReadAt(0, &header, sizeof(header)));
    if (header.e_type != ET_DYN) return BadElf("is not a shared object");
    ElfInfo info{.is_64_bit = sizeof(Ehdr) == sizeof(Elf64_Ehdr)};
    RETURN_IF_ERROR(ReadProgramHeaders(header));
    ASSIGN_OR_RETURN(info.soname, ReadSoname());
    return info;
  }

 private:
  Status ReadProgramHeaders(const Ehdr& header) {
    if (header.e_phentsize != sizeof(Phdr) || header.e_phnum > kMaxProgramHeaders) {
      return BadElf("has an invalid program header table");
    }
    if (!file_.Inside(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Phdr))) {
      return BadElf("has its program headers outside of the file");
    }
    segments_.resize(header.e_phnum);
    return file_.ReadAt(header.e_phoff, segments_.data(), segments_.size() * sizeof(Phdr));
  }

  Result<std::string> ReadSoname() {
    for (const Phdr& segment : segments_) {
      if (segment.p_type == PT_DYNAMIC) return SonameFrom(segment);
    }
    return BadElf("has no dynamic section");
  }

  Result<std::string> SonameFrom(const Phdr& dynamic) {
    const size_t count = dynamic.p_filesz / sizeof(Dyn);
    if (count > kMaxDynamicEntries || !file_.Inside(dynamic.p_offset, dynamic.p_filesz)) {
      return BadElf("has its dynamic section outside of the file");
    }
    std::vector<Dyn> entries(count);
    RETURN_IF_ERROR(file_.ReadAt(dynamic.p_offset, entries.data(), count * sizeof(Dyn)));
    std::optional<uint64_t> name, table, table_size;
    for (const Dyn& entry : entries) {
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_SONAME) name = entry.d_un.d_val;
      if (entry.d_tag == DT_STRTAB) table = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRSZ) table_size = entry.d_un.d_val;
    }
    if (!name) return std::string();
    if (!table || !table_size || *name >= *table_size)
      return BadElf("has a SONAME without a string");
    ASSIGN_OR_RETURN(const uint64_t offset, FileOffset(*table));
    return StringAt(offset, *name, *table_size - *name);
  }

  // The file offset of an address of the loaded image.
  Result<uint64_t> FileOffset(uint64_t address) const {
    for (const Phdr& segment : segments_) {
      if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
      const uint64_t into = address - segment.p_vaddr;
      if (into < segment.p_filesz) return segment.p_offset + into;
    }
    return BadElf("has its string table in no segment");
  }

  Result<std::string> StringAt(uint64_t table, uint64_t name, uint64_t max_size) const {
    const uint64_t offset = table + name;
    if (offset < table || offset >= file_.size())
      return BadElf("has its SONAME outside of the file");
    char text[kMaxSonameLength + 1];
    const uint64_t length = std::min<uint64_t>({sizeof(text), max_size, file_.size() - offset});
    RETURN_IF_ERROR(file_.ReadAt(offset, text, length));
    const size_t end = ::strnlen(text, length);
    if (end == length) return BadElf("has a SONAME that does not end");
    if (end == 0 || std::memchr(text, '/', end) != nullptr)
      return BadElf("has an empty SONAME, or a SONAME with a slash");
    return std::string(text, end);
  }

  const ElfFile& file_;
  std::vector<Phdr> segments_;
};

}  // namespace

Result<ElfInfo> ReadElf(int fd) {
  ASSIGN_OR_RETURN(const ElfFile file, ElfFile::Open(fd));
  unsigned char ident[EI_NIDENT];
  RETURN_IF_ERROR(file.ReadAt(0, ident, sizeof(ident)));
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) return BadElf("is not an ELF file");
  if (ident[EI_DATA] != ELFDATA2LSB) return BadElf("is not little endian");
  if (ident[EI_CLASS] == ELFCLASS64) {
    return ElfWalker<Elf64_Ehdr, Elf64_Phdr, Elf64_Dyn>(file).Walk();
  }
  if (ident[EI_CLASS] == ELFCLASS32) {
    return ElfWalker<Elf32_Ehdr, Elf32_Phdr, Elf32_Dyn>(file).Walk();
  }
  return BadElf("is of neither 32 nor 64 bits");
}

}  // namespace tessera::oci
