// SPDX-License-Identifier: Apache-2.0
// Runs a container engine in namespaces of its own, so that its processes and mounts end with the
// test, and its containers below one cgroup, which is removed.
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

  // A name below every hierarchy's root.
  const std::string& cgroup() const { return cgroup_; }

 private:
  static void RemoveCgroup(const std::filesystem::path& folder);

  std::string cgroup_;
};

}  // namespace tessera
