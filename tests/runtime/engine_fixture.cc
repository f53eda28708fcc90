// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/engine_fixture.h"

#include <unistd.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

}  // namespace

void EngineFixture::SetUp() {
  ContainerFixture::SetUp();
  if (IsSkipped()) return;
  cgroup_ = fmt::format("tessera-engine-{}", ::getpid());
  // Engines do not pass their environment to the runtime, so a script sets the variable.
  const std::string wrapper = fmt::format("#!/bin/sh\nTESSERA_RUNTIME_CONFIG={} exec {} \"$@\"\n",
                                          path("runtime.toml"), TESSERA_RUNTIME_PROGRAM);
  ASSERT_TRUE(WriteFileAtomically(path("runtime"), wrapper, 0755).ok());
}

void EngineFixture::TearDown() {
  std::error_code ignored;
  for (const auto& hierarchy : fs::directory_iterator("/sys/fs/cgroup", ignored)) {
    RemoveCgroup(hierarchy.path() / cgroup_);
  }
  RemoveCgroup("/sys/fs/cgroup/" + cgroup_);
  ContainerFixture::TearDown();
}

SubprocessResult EngineFixture::Shell(const std::string& script) {
  const auto result =
      RunProgram({"/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                  "--propagation", "private", "/bin/sh", "-c",
                  "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && cd " + path("") +
                      " && " + script},
                 std::chrono::seconds(50));
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : SubprocessResult{};
}

void EngineFixture::RemoveCgroup(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_directory(ignored)) RemoveCgroup(entry.path());
  }
  ::rmdir(folder.c_str());
}

}  // namespace tessera
