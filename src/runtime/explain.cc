// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/explain.h"

#include <unistd.h>

#include <cstring>

#include "src/base/file.h"
#include "src/base/version.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kExplainHelp =
    R"(Prints what a container would get, and why. Changes nothing; in Kubernetes it asks the agent, as create does.

Usage: tessera-runtime explain [OPTIONS]

Options:
  -h,--help                   Print this help message and exit
  --version                   Print the version and exit
  -b,--bundle DIR=.           The container's bundle, with its config.json
)";
// Exit code for an invalid command line, as in most programs.
constexpr int kExitUsage = 2;

struct ExplainArguments {
  bool help = false;
  bool version = false;
  std::string bundle = ".";
};

Result<ExplainArguments> ReadArguments(int argc, char** argv) {
  ExplainArguments arguments;
  for (int i = 2; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      arguments.help = true;
    } else if (argument == "--version") {
      arguments.version = true;
    } else if (argument.starts_with("--bundle=")) {
      arguments.bundle = argument.substr(std::strlen("--bundle="));
    } else if (argument == "--bundle" || argument == "-b") {
      if (i + 1 == argc) return Error(Code::kInvalidArgument, "{} needs a directory", argument);
      arguments.bundle = argv[++i];
    } else {
      return Error(Code::kInvalidArgument, "unknown argument \"{}\"", argument);
    }
  }
  return arguments;
}

Result<std::string> Explain(const std::string& bundle, const Result<Options>& options) {
  if (!options.ok()) return options.status();
  ASSIGN_OR_RETURN(const auto document, oci::ConfigDocument::Load(bundle));
  ASSIGN_OR_RETURN(const Decision decision, Decide(document, *options));
  return DescribeDecision(decision);
}

int Fail(std::string_view message, int exit_code) {
  (void)WriteFd(STDERR_FILENO, fmt::format("tessera-runtime: {}\n", message)).ok();
  return exit_code;
}

std::string DescribeLinker(const oci::LinkerSetup& linker) {
  switch (linker.method) {
    case oci::LinkerSetup::Method::kWrite:
      return "libraries are found through /etc/ld.so.cache, written into the container's layer\n";
    case oci::LinkerSetup::Method::kMount:
      return "libraries are found through /etc/ld.so.cache, mounted into the read-only root\n";
    case oci::LinkerSetup::Method::kEnvironment:
      break;
  }
  return fmt::format("libraries are found through LD_LIBRARY_PATH: {}\n", linker.fallback_reason);
}

}  // namespace

std::string DescribeDecision(const Decision& decision) {
  std::string text = fmt::format("decision   {}\n", decision.reason);
  const auto denied = [&](const std::vector<oci::DeviceNode>& nodes) {
    for (const oci::DeviceNode& node : nodes) {
      text += fmt::format("denied     {} {}:{}\n", node.path, node.major_number, node.minor_number);
    }
  };
  if (!decision.injection) {
    denied(decision.denied_gpus);
    return text + "injected   nothing\n";
  }
  const oci::Injection& injection = *decision.injection;
  denied(injection.denied_devices);
  const std::string& dir = decision.target->driver_dir;
  for (const oci::DeviceNode& node : injection.devices) {
    text += fmt::format("device     {} {}:{}\n", node.path, node.major_number, node.minor_number);
  }
  text += fmt::format("driver     {} in {}\n", injection.driver.version, injection.driver.root);
  for (const oci::DriverLibrary& library : injection.driver.libraries) {
    text += fmt::format("library    {}/lib/{} ({}) from {}\n", dir, library.soname,
                        library.file_name, library.host_path);
  }
  for (const oci::FoundFile& binary : injection.driver.binaries) {
    text += fmt::format("binary     {}/bin/{} from {}\n", dir, binary.name, binary.host_path);
  }
  for (const oci::FoundFile& file : injection.driver.data_files) {
    text += fmt::format("file       {}/share/{} from {}\n", dir, file.name, file.host_path);
  }
  for (const oci::Mount& mount : injection.mounts) {
    text += fmt::format("mount      {} from {}\n", mount.destination, mount.source);
  }
  for (const auto& [name, value] : injection.env)
    text += fmt::format("env        {}={}\n", name, value);
  text += DescribeLinker(decision.target->linker);
  if (!decision.target->library_dir.empty()) {
    text += fmt::format("links to the libraries are made in /{}\n", decision.target->library_dir);
  }
  for (const std::string& note : injection.driver.notes)
    text += fmt::format("note       {}\n", note);
  return text;
}

int ExplainMain(int argc, char** argv, const Result<Options>& options) {
  const Result<ExplainArguments> arguments = ReadArguments(argc, argv);
  if (!arguments.ok()) {
    return Fail(fmt::format("explain: {}: see tessera-runtime explain --help",
                            arguments.status().message()),
                kExitUsage);
  }
  const Result<std::string> text = arguments->help ? std::string(kExplainHelp)
                                   : arguments->version
                                       ? fmt::format("tessera-runtime: {}\n", kTesseraVersion)
                                       : Explain(arguments->bundle, options);
  if (!text.ok()) return Fail(text.status().message(), InfoOf(text.status().code()).exit_code);
  return WriteFd(STDOUT_FILENO, *text).ok() ? 0 : 1;
}

}  // namespace tessera::runtime
