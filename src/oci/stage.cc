// SPDX-License-Identifier: Apache-2.0
#include "src/oci/stage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "src/base/file.h"

namespace tessera::oci {
namespace {

// The container's user must be able to read what is staged, whatever umask the engine runs with. The
// low-level runtime inherits ours, so it is put back.
class ScopedUmask {
 public:
  ScopedUmask() : old_(::umask(0022)) {}
  ~ScopedUmask() { ::umask(old_); }
  ScopedUmask(const ScopedUmask&) = delete;
  ScopedUmask& operator=(const ScopedUmask&) = delete;

 private:
  mode_t old_;
};

// The folders of `name` below `tree`, which is there.
Status MakeParents(const std::string& tree, const std::string& name) {
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string path = JoinPath(tree, std::string_view(name).substr(0, slash));
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return Status::FromErrno(path, errno);
  }
  return Status::Ok();
}

}  // namespace

std::string Stage::PathIn(const std::string& bundle) { return JoinPath(bundle, "tessera"); }

Result<Stage> Stage::Make(const std::string& bundle) {
  const ScopedUmask umask;
  Stage stage(PathIn(bundle));
  if (::mkdir(stage.path_.c_str(), 0755) != 0) {
    if (errno != EEXIST) return Status::FromErrno(stage.path_, errno);
    std::error_code error;
    std::filesystem::remove_all(stage.path_, error);  // removes links, does not follow them
    if (error) return Status::FromErrno(stage.path_, error.value());
    if (::mkdir(stage.path_.c_str(), 0755) != 0) return Status::FromErrno(stage.path_, errno);
  }
  if (::mkdir(stage.tree().c_str(), 0755) != 0) return Status::FromErrno(stage.tree(), errno);
  return stage;
}

Status Stage::AddPlace(const std::string& name) {
  const ScopedUmask umask;
  const std::string path = JoinPath(tree(), name);
  // An empty file, by one call instead of open and close.
  int failed = ::mknod(path.c_str(), S_IFREG | 0444, 0);
  if (failed != 0 && errno == ENOENT) {
    RETURN_IF_ERROR(MakeParents(tree(), name));
    failed = ::mknod(path.c_str(), S_IFREG | 0444, 0);
  }
  return failed == 0 || errno == EEXIST ? Status::Ok() : Status::FromErrno(path, errno);
}

Status Stage::AddFolder(const std::string& name) {
  const ScopedUmask umask;
  return MakeDirs(JoinPath(tree(), name));
}

Status Stage::AddLink(const std::string& name, const std::string& target) {
  const std::string path = JoinPath(tree(), name);
  if (::symlink(target.c_str(), path.c_str()) == 0 || errno == EEXIST) return Status::Ok();
  return Status::FromErrno(path, errno);
}

Result<std::string> Stage::AddFile(const std::string& name, std::string_view data) {
  const ScopedUmask umask;
  std::string path = JoinPath(path_, name);
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return Status::FromErrno(path, errno);
  RETURN_IF_ERROR(WriteFd(fd.get(), data).Annotate(path));
  return path;
}

}  // namespace tessera::oci
