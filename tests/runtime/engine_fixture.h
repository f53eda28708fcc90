// SPDX-License-Identifier: Apache-2.0
// Runs a container engine in its own namespaces, so that its processes and mounts end with the
// test. Its containers are below one cgroup, which the end of the test removes.
#pragma once

#include <filesystem>
#include <string>

#include "tests/runtime/container_fixture.h"

namespace tessera {

class EngineFixture : public ContainerFixture {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Runs the script in the test's folder. Process 1 of the namespace ends with the shell, and all
  // others with it.
  SubprocessResult Shell(const std::string& script);

  // The name of the engine's cgroup below the root of every cgroup hierarchy.
  const std::string& cgroup() const { return cgroup_; }

 private:
  static void RemoveCgroup(const std::filesystem::path& folder);

  std::string cgroup_;
};

}  // namespace tessera
