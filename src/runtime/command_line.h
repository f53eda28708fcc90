// SPDX-License-Identifier: Apache-2.0
// What an engine asks of an OCI runtime, read the way runc and crun read it: global options, a
// verb, its options, the container's id. Only what we need is kept; argv itself goes on unchanged.
// Pure, allocates nothing: it is on the way of every exec probe of a node.
#pragma once

namespace tessera::runtime {

// Pointers into argv; null where not given.
struct CommandLine {
  const char* verb = nullptr;
  const char* bundle = nullptr;     // of create and run
  const char* config = nullptr;     // crun's --config of create and run
  const char* process = nullptr;    // of exec: the file with the process
  const char* resources = nullptr;  // of update: the file with what it sets, or "-"
  const char* log = nullptr;
  bool log_json = false;

  // Does the verb start a container from a bundle?
  bool makes_container() const;
};

// Knows the options that take a value, so that no value is taken for a verb: `--root create state
// x` is a state.
CommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace tessera::runtime
