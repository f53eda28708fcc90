// SPDX-License-Identifier: Apache-2.0
#include "src/oci/ld_cache.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>
#include <utility>

namespace tessera::oci {
namespace {

// From glibc's sysdeps/generic/dl-cache.h. All numbers have the machine's byte order.
constexpr std::string_view kOldMagic = "ld.so-1.7.0";
constexpr std::string_view kNewMagic = "glibc-ld.so.cache1.1";
constexpr size_t kOldHeaderSize = 16;
constexpr size_t kOldEntrySize = 12;
constexpr uint8_t kLittleEndian = 2;
constexpr uint32_t kExtensionMagic = 0xeaa42174;
constexpr uint32_t kSectionHwcaps = 1;
constexpr uint64_t kHwcapExtension = uint64_t{1} << 62;
constexpr size_t kMaxHwcaps = 1024;
// Maximum sum of the lengths of all strings. Entries of a damaged file may all refer to one long
// string, which would take more memory than the host has.
constexpr size_t kMaxStringBytes = 4 * kMaxLdCacheSize;

struct NewHeader {
  char magic[20];
  uint32_t count;
  uint32_t strings_size;
  uint8_t flags;
  uint8_t padding[3];
  uint32_t extension_offset;
  uint32_t unused[3];
};
static_assert(sizeof(NewHeader) == 48);

struct NewEntry {
  int32_t flags;
  uint32_t key;  // `key` and `value` are offsets of strings from the start of NewHeader
  uint32_t value;
  uint32_t os_version;
  uint64_t hwcap;
};
static_assert(sizeof(NewEntry) == 24);

struct CacheSection {
  uint32_t tag;
  uint32_t flags;
  uint32_t offset;
  uint32_t size;
};

Status BadCache(std::string_view problem) {
  return Error(Code::kInvalidArgument, "damaged ld.so.cache: {}", problem);
}

class LdCacheReader {
 public:
  explicit LdCacheReader(std::string_view data) : data_(data) {}

  Result<LdCache> Read() {
    NewHeader header;
    if (!Copy(0, &header)) return BadCache("shorter than its header");
    if (header.flags != 0 && (header.flags & 3) != kLittleEndian) {
      return BadCache("of another byte order");
    }
    if (header.count > (data_.size() - sizeof(header)) / sizeof(NewEntry)) {
      return BadCache("fewer entries than announced");
    }
    LdCache cache;
    cache.entries.reserve(header.count);
    for (uint32_t i = 0; i < header.count; ++i) {
      NewEntry raw{};
      Copy(sizeof(header) + i * sizeof(NewEntry), &raw);
      LdCacheEntry entry{{}, {}, raw.flags, raw.os_version, raw.hwcap};
      if (!ReadString(raw.key, &entry.name) || !ReadString(raw.value, &entry.path)) {
        return Error(Code::kInvalidArgument, "damaged ld.so.cache: entry {} has no valid name", i);
      }
      cache.entries.push_back(std::move(entry));
    }
    if (header.extension_offset != 0) RETURN_IF_ERROR(ReadExtension(header, &cache));
    return cache;
  }

 private:
  Status ReadExtension(const NewHeader& header, LdCache* cache) {
    uint32_t magic_and_count[2];
    if (!Copy(header.extension_offset, &magic_and_count))
      return BadCache("the extension is outside of the file");
    // Ignores unknown extensions, like the linker.
    if (magic_and_count[0] != kExtensionMagic) return Status::Ok();
    for (uint32_t i = 0; i < std::min<uint32_t>(magic_and_count[1], 64); ++i) {
      CacheSection section;
      if (!Copy(header.extension_offset + 8 + i * sizeof(CacheSection), &section)) {
        return BadCache("a section of the extension is outside of the file");
      }
      if (section.tag == kSectionHwcaps) RETURN_IF_ERROR(ReadHwcaps(section, cache));
    }
    return Status::Ok();
  }

  Status ReadHwcaps(const CacheSection& section, LdCache* cache) {
    if (section.size / 4 > kMaxHwcaps) return BadCache("too many glibc-hwcaps");
    for (uint32_t i = 0; i < section.size / 4; ++i) {
      uint32_t offset = 0;
      std::string name;
      if (!Copy(size_t{section.offset} + i * 4, &offset) || !ReadString(offset, &name)) {
        return BadCache("glibc-hwcaps are outside of the file");
      }
      cache->hwcaps.push_back(std::move(name));
    }
    return Status::Ok();
  }

  template <typename T>
  bool Copy(size_t offset, T* to) const {
    if (offset > data_.size() || sizeof(T) > data_.size() - offset) return false;
    std::memcpy(to, data_.data() + offset, sizeof(T));
    return true;
  }

  bool ReadString(size_t offset, std::string* out) {
    if (offset >= data_.size()) return false;
    const size_t end = data_.find('\0', offset);
    if (end == std::string_view::npos) return false;
    string_bytes_ += end - offset;
    if (string_bytes_ > kMaxStringBytes) return false;
    out->assign(data_.substr(offset, end - offset));
    return true;
  }

  std::string_view data_;
  size_t string_bytes_ = 0;  // of all strings read so far
};

// Collects distinct strings and their offsets from the start of the file.
class StringTable {
 public:
  explicit StringTable(size_t start) : start_(start) {}
  uint32_t Add(const std::string& text) {
    const auto [place, is_new] = offsets_.try_emplace(text, start_ + bytes_.size());
    if (is_new) bytes_.append(text).push_back('\0');
    return static_cast<uint32_t>(place->second);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  size_t start_;
  std::string bytes_;
  std::unordered_map<std::string, size_t> offsets_;
};

template <typename T>
void AppendRaw(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// False for an entry of a glibc-hwcaps directory that the cache does not list.
bool HasKnownHwcap(const LdCacheEntry& entry, const LdCache& cache) {
  return (entry.hwcap & kHwcapExtension) == 0 || (entry.hwcap & 0xffffffff) < cache.hwcaps.size();
}

}  // namespace

int32_t NativeLdCacheFlags() {
#if defined(__x86_64__)
  return 0x0303;
#elif defined(__aarch64__)
  return 0x0a03;
#else
#error "the flags of this machine's libraries in ld.so.cache are not known"
#endif
}

int CompareLibraryNames(std::string_view a, std::string_view b) {
  const auto is_digit = [](std::string_view text, size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  size_t i = 0, j = 0;
  while (i < a.size()) {
    if (is_digit(a, i)) {
      if (!is_digit(b, j)) return 1;
      uint32_t number_a = 0, number_b = 0;
      while (is_digit(a, i)) number_a = number_a * 10 + static_cast<uint32_t>(a[i++] - '0');
      while (is_digit(b, j)) number_b = number_b * 10 + static_cast<uint32_t>(b[j++] - '0');
      if (number_a != number_b) return number_a < number_b ? -1 : 1;
    } else if (is_digit(b, j)) {
      return -1;
    } else {
      const int character_b = j < b.size() ? static_cast<unsigned char>(b[j]) : 0;
      const int difference = static_cast<unsigned char>(a[i]) - character_b;
      if (difference != 0) return difference;
      ++i, ++j;
    }
  }
  return j < b.size() ? -static_cast<int>(static_cast<unsigned char>(b[j])) : 0;
}

Result<LdCache> ParseLdCache(std::string_view data) {
  if (data.size() > kMaxLdCacheSize) return BadCache("too long");
  if (data.starts_with(kOldMagic)) {
    uint32_t count = 0;
    if (data.size() < kOldHeaderSize) return BadCache("shorter than its header");
    // The magic has eleven bytes; padding aligns the number of entries.
    std::memcpy(&count, data.data() + kOldMagic.size() + 1, sizeof(count));
    // The newer part starts at the next multiple of eight.
    const size_t end = (kOldHeaderSize + size_t{count} * kOldEntrySize + 7) & ~size_t{7};
    if (end > data.size()) return BadCache("fewer entries than announced");
    data.remove_prefix(end);
  }
  if (!data.starts_with(kNewMagic)) return BadCache("unknown format");
  return LdCacheReader(data).Read();
}

LdCache MergeLdCaches(std::vector<LdCacheEntry> driver_entries, const LdCache& image) {
  LdCache merged;
  merged.hwcaps = image.hwcaps;
  std::set<std::pair<std::string, int32_t>> driver_names;
  for (const LdCacheEntry& entry : driver_entries) driver_names.emplace(entry.name, entry.flags);
  merged.entries = std::move(driver_entries);
  for (const LdCacheEntry& entry : image.entries) {
    if (!driver_names.contains({entry.name, entry.flags})) merged.entries.push_back(entry);
  }
  return merged;
}

std::string WriteLdCache(const LdCache& cache) {
  std::vector<const LdCacheEntry*> sorted;
  for (const LdCacheEntry& entry : cache.entries) {
    if (HasKnownHwcap(entry, cache)) sorted.push_back(&entry);
  }
  // The order is descending, as ldconfig writes it. Equal names keep their order, in which the
  // linker tries them.
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return CompareLibraryNames(a->name, b->name) > 0;
  });

  NewHeader header{};
  std::memcpy(header.magic, kNewMagic.data(), sizeof(header.magic));
  header.count = static_cast<uint32_t>(sorted.size());
  header.flags = kLittleEndian;
  StringTable strings(sizeof(header) + sorted.size() * sizeof(NewEntry));
  std::string entries;
  for (const LdCacheEntry* entry : sorted) {
    const uint32_t key = strings.Add(entry->name);
    const uint32_t value = strings.Add(entry->path);
    AppendRaw(NewEntry{entry->flags, key, value, entry->os_version, entry->hwcap}, &entries);
  }
  std::string hwcaps;
  for (const std::string& name : cache.hwcaps) AppendRaw(strings.Add(name), &hwcaps);
  header.strings_size = static_cast<uint32_t>(strings.bytes().size());

  std::string tail;
  if (!hwcaps.empty()) {
    const size_t end = sizeof(header) + entries.size() + strings.bytes().size();
    header.extension_offset = static_cast<uint32_t>((end + 3) & ~size_t{3});
    tail.assign(header.extension_offset - end, '\0');
    AppendRaw(kExtensionMagic, &tail);
    AppendRaw(uint32_t{1}, &tail);
    const auto at = static_cast<uint32_t>(header.extension_offset + 8 + sizeof(CacheSection));
    AppendRaw(CacheSection{kSectionHwcaps, 0, at, static_cast<uint32_t>(hwcaps.size())}, &tail);
    tail += hwcaps;
  }
  std::string file;
  AppendRaw(header, &file);
  return file + entries + strings.bytes() + tail;
}

}  // namespace tessera::oci
