// SPDX-License-Identifier: Apache-2.0
#include "src/oci/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "src/base/file.h"

namespace tessera::oci {

Status ReplaceFile(const std::string& path, std::string_view data) {
  struct stat old_info;
  if (::stat(path.c_str(), &old_info) != 0) return Status::FromErrno(path, errno);
  // Not synced to disk: engines keep bundles below /run, which is empty after a reboot.
  std::string temporary = path + ".XXXXXX";
  const Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return Status::FromErrno(path, errno);
  Status status = WriteFd(fd.get(), data);
  // fchown clears the set-ID bits, so fchmod follows it.
  if (status.ok() && (::fchown(fd.get(), old_info.st_uid, old_info.st_gid) != 0 ||
                      ::fchmod(fd.get(), old_info.st_mode & 07777) != 0 ||
                      ::rename(temporary.c_str(), path.c_str()) != 0)) {
    status = Status::FromErrno("replace", errno);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status.Annotate(path);
}

}  // namespace tessera::oci
