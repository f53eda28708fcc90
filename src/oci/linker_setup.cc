// SPDX-License-Identifier: Apache-2.0
#include "src/oci/linker_setup.h"

#include <algorithm>
#include <utility>

#include "src/base/machine.h"
#include "src/base/strings.h"
#include "src/oci/driver_search.h"
#include "src/oci/tree.h"

namespace tessera::oci {
namespace {

constexpr const char* kCache = "etc/ld.so.cache";
constexpr const char* kConf = "etc/ld.so.conf";
constexpr const char* kConfDir = "etc/ld.so.conf.d";
// ldconfig reads these files in the order of their names, and prefers entries found first.
constexpr const char* kTesseraConf = "etc/ld.so.conf.d/00-tessera.conf";
constexpr size_t kMaxConfSize = 64u << 10;

// Whether ldconfig reads the directory of Tessera's file.
bool IncludesConfDir(std::string_view conf) {
  const auto lines = Split(conf, '\n');
  return std::any_of(lines.begin(), lines.end(), [](std::string_view line) {
    const size_t comment = std::min(line.find('#'), line.size());
    std::string text(line.substr(0, comment));
    std::replace(text.begin(), text.end(), '\t', ' ');
    const auto words = SplitList(text, ' ');
    return words.size() == 2 && words[0] == "include" &&
           (words[1] == "ld.so.conf.d/*.conf" || words[1] == "/etc/ld.so.conf.d/*.conf");
  });
}

Status CheckLdconfig(const RootedDir& root) {
  ASSIGN_OR_RETURN(const std::string conf, root.Read(kConf, Links::kReject, kMaxConfSize));
  if (!root.HasDir(kConfDir, Links::kReject) || !IncludesConfDir(conf)) {
    return Error(Code::kFailedPrecondition, "the image's /{} does not include /{}/*.conf", kConf,
                 kConfDir);
  }
  return Status::Ok();
}

Result<LdCache> ReadCache(const RootedDir& root) {
  ASSIGN_OR_RETURN(const std::string file, root.Read(kCache, Links::kReject, kMaxLdCacheSize));
  ASSIGN_OR_RETURN(LdCache cache, ParseLdCache(file));
  // Entries of an earlier start of this container, or of the container from which its image was
  // committed.
  std::erase_if(cache.entries, [](const LdCacheEntry& entry) { return IsInDriverDir(entry.path); });
  return cache;
}

}  // namespace

LinkerSetup FindLinkerSetup(const RootedDir& root, bool read_only) {
  LinkerSetup setup;
  Result<LdCache> cache = ReadCache(root);
  const Status usable = !cache.ok() || read_only ? cache.status() : CheckLdconfig(root);
  if (!usable.ok()) {
    setup.fallback_reason = usable.message();
    return setup;
  }
  setup.method = read_only ? LinkerSetup::Method::kMount : LinkerSetup::Method::kWrite;
  setup.cache = std::move(*cache);
  return setup;
}

std::string FindLibraryDir(const RootedDir& root) {
  for (const char* dir : {"usr/lib/" TESSERA_MULTIARCH, "usr/lib64"}) {
    // In some distributions usr/lib64 is a link to usr/lib.
    Result<std::string> real = root.RealPath(dir);
    if (!real.ok() || std::ranges::count(kLibraryDirs, *real) == 0) continue;
    if (root.HasDir(*real, Links::kReject)) return std::move(*real);
  }
  return {};
}

Status LinkLibraries(const RootedDir& root, const std::string& image_dir,
                     std::string_view driver_dir, const std::vector<std::string>& names) {
  return root.MakeLinks(image_dir, driver_dir, names, IsInDriverDir);
}

Status WriteLinkerFiles(const RootedDir& root, std::string_view driver_dir,
                        std::string_view cache) {
  const std::string conf = fmt::format(
      "# Written by tessera-runtime: the GPU driver's libraries, where the container has "
      "them.\n{}\n",
      driver_dir);
  const auto write = [&](const char* path, std::string_view data) {
    const auto current = root.Read(path, Links::kReject, kMaxLdCacheSize);
    return current.ok() && *current == data ? Status::Ok() : root.ReplaceFile(path, data);
  };
  RETURN_IF_ERROR(write(kTesseraConf, conf));
  return write(kCache, cache);
}

}  // namespace tessera::oci
