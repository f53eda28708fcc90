// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/configure.h"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <ios>
#include <map>
#include <optional>

#include "api/names.h"
#include "src/base/log.h"
#include "src/base/version.h"
#include "src/formats/toml.h"
#include "src/oci/shared_tree.h"
#include "src/runtime/engine/configurator.h"
#include "src/runtime/engine/install.h"

namespace tessera::engine {
namespace {

struct DefaultPaths {
  const char* config;
  const char* drop_in;
  const char* socket;
  KeyPath socket_key;  // in the main file
};

const DefaultPaths& DefaultPathsOf(EngineKind engine) {
  static const std::map<EngineKind, DefaultPaths> paths = {
      {EngineKind::kContainerd,
       {"/etc/containerd/config.toml",
        "/etc/containerd/conf.d/99-tessera.toml",
        "/run/containerd/containerd.sock",
        {"grpc", "address"}}},
      {EngineKind::kDocker, {"/etc/docker/daemon.json", "", "/run/docker.sock", {}}},
      {EngineKind::kCrio,
       {"/etc/crio/crio.conf",
        "/etc/crio/crio.conf.d/99-tessera.toml",
        "/run/crio/crio.sock",
        {"crio", "api", "listen"}}},
  };
  return paths.at(engine);
}

struct ConfigureFlags {
  EngineKind engine = EngineKind::kContainerd;
  std::optional<std::string> config;
  std::optional<std::string> drop_in;
  std::optional<std::string> socket;
  std::string runtime_name{names::kRuntimeHandler};
  std::string runtime_path{names::kRuntimeBinary};
  bool set_as_default = false;
  bool enable_cdi = false;
  bool dry_run = false;
  bool undo = false;
  bool guard = false;
  bool only_with_gpu = false;
  double spread_s = 0;
  RestartMode restart_mode = RestartMode::kAuto;
  std::string host_root;
  double timeout_s = 60;
  std::string validate_command;
  bool install = false;
  std::string runtime_config{names::kRuntimeConfigFile};
  RuntimeSettings settings;
};

// An option with a fixed set of names. CLI11's transformer also accepts and prints their numbers.
template <typename T>
CLI::Option* AddChoice(CLI::App* app, const std::string& names, const std::string& description,
                       T* to, const std::vector<std::pair<std::string, T>>& choices) {
  std::string listed;
  for (const auto& [name, value] : choices) listed += (listed.empty() ? "" : ",") + name;
  const auto assign = [to, names, choices, listed](const std::string& text) {
    for (const auto& [name, value] : choices) {
      if (name != text) continue;
      *to = value;
      return;
    }
    throw CLI::ValidationError(names.substr(0, names.find(',')),
                               fmt::format("\"{}\" is not one of {}", text, listed));
  };
  return app->add_option_function<std::string>(names, assign, description)
      ->type_name("{" + listed + "}");
}

void AddEngineFlags(CLI::App* app, ConfigureFlags* flags) {
  AddChoice<EngineKind>(app, "--engine,--runtime", "Engine to configure", &flags->engine,
                        {{"containerd", EngineKind::kContainerd},
                         {"docker", EngineKind::kDocker},
                         {"crio", EngineKind::kCrio}})
      ->required();
  app->add_option("--config", flags->config, "The engine's main file (default: its usual path)");
  app->add_option("--drop-in-config", flags->drop_in,
                  "Tessera's own file, if the engine has drop-ins; \"\" edits the main file");
  app->add_option("--socket", flags->socket,
                  "The engine's socket (default: from the engine's configuration)");
  app->add_option("--runtime-name,--nvidia-runtime-name", flags->runtime_name,
                  "Name of the runtime handler")
      ->capture_default_str();
  app->add_option("--runtime-path,--nvidia-runtime-path", flags->runtime_path,
                  "Path of the runtime on the host")
      ->capture_default_str();
  app->add_flag("--set-as-default,--nvidia-set-as-default", flags->set_as_default,
                "Make this runtime handler the engine's default");
  app->add_flag("--cdi.enabled,--cdi.enable,--enable-cdi", flags->enable_cdi,
                "Also let the engine inject CDI devices");
  AddChoice<RestartMode>(app, "--restart-mode", "How to make the engine reload its configuration",
                         &flags->restart_mode,
                         {{"none", RestartMode::kNone},
                          {"signal", RestartMode::kSignal},
                          {"systemd", RestartMode::kSystemd},
                          {"auto", RestartMode::kAuto}});
  app->add_option(
         "--timeout", flags->timeout_s,
         "Seconds within which the engine must serve again, otherwise all changes are rolled back")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  app->add_option("--validate-command", flags->validate_command,
                  "The engine's program, to validate the result (default: found on the host)");
}

void AddRunAndInstallFlags(CLI::App* app, ConfigureFlags* flags) {
  app->add_flag("--dry-run", flags->dry_run, "Print what would change, and change nothing");
  app->add_flag("--undo", flags->undo, "Undo the configuration");
  app->add_flag(
      "--guard", flags->guard,
      "Configure nothing, and run until stopped: if another run was killed and the engine does not "
      "serve within --timeout, restore its files");
  app->add_flag("--only-with-gpu", flags->only_with_gpu,
                "Do nothing on a node that has no NVIDIA GPU");
  app->add_option(
         "--spread", flags->spread_s,
         "Wait a random time, at most this many seconds, before a change that restarts the engine, "
         "so that a rollout does not restart the engines of all nodes at once")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app->add_option("--host-root", flags->host_root, "Directory where the host's root is mounted");
  app->add_flag("--install", flags->install, "First copy this program to --runtime-path");
  app->add_option("--runtime-config", flags->runtime_config, "The runtime's settings on the host")
      ->capture_default_str();
  app->add_option("--driver-root", flags->settings.driver_root,
                  "Setting: root of the driver's files");
  app->add_option("--dev-root", flags->settings.dev_root, "Setting: root of the device nodes");
  app->add_option("--grant-socket", flags->settings.grant_socket, "Setting: the agent's socket");
  app->add_option("--low-level-runtime", flags->settings.runtimes,
                  "Setting: low-level runtimes, the first that exists is used");
}

// The engine's socket: from the flag, else from the engine's configuration, else the default.
std::string SocketOf(const ConfigureFlags& flags, const HostRoot& host, const std::string& config) {
  const DefaultPaths& defaults = DefaultPathsOf(flags.engine);
  if (flags.socket) return *flags.socket;
  if (defaults.socket_key.empty()) return defaults.socket;
  const auto state = host.Read(config);
  if (!state.ok() || !state->has_value()) return defaults.socket;
  const auto document = ParseToml((*state)->text);
  if (!document.ok()) return defaults.socket;
  const Json* const address = FindPath(*document, defaults.socket_key);
  if (address == nullptr || !address->is_string() || address->string_value().empty()) {
    return defaults.socket;
  }
  return address->string_value();
}

ConfigureOptions ToOptions(const ConfigureFlags& flags, const HostRoot& host) {
  const DefaultPaths& defaults = DefaultPathsOf(flags.engine);
  ConfigureOptions options;
  options.engine = flags.engine;
  options.settings.config = flags.config.value_or(defaults.config);
  options.settings.drop_in = flags.drop_in.value_or(defaults.drop_in);
  options.settings.runtime_name = flags.runtime_name;
  options.settings.runtime_path = flags.runtime_path;
  options.settings.set_as_default = flags.set_as_default;
  options.settings.enable_cdi = flags.enable_cdi;
  options.reload.engine = flags.engine;
  options.reload.mode = flags.restart_mode;
  options.reload.socket = SocketOf(flags, host, options.settings.config);
  options.reload.timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.timeout_s));
  options.validate_program = flags.validate_command;
  options.dry_run = flags.dry_run;
  return options;
}

// Engines start the runtime from their own directory, so the path must be absolute. Only Docker
// looks up a bare name, in dockerd's PATH.
Status CheckRuntimePath(const ConfigureFlags& flags) {
  const std::string& path = flags.runtime_path;
  const bool is_bare_name = !path.empty() && path.find('/') == std::string::npos;
  if (path.starts_with('/')) return Status::Ok();
  if (is_bare_name && flags.engine == EngineKind::kDocker && !flags.install) return Status::Ok();
  return Error(
      Code::kInvalidArgument,
      "--runtime-path \"{}\" is not an absolute path: give the place of tessera-runtime on the "
      "host, such as {}",
      path, names::kRuntimeBinary);
}

Status CheckFlags(const ConfigureFlags& flags, const ConfigureOptions& options) {
  for (const std::string& path : {options.settings.config, options.reload.socket}) {
    if (!path.starts_with('/'))
      return Error(Code::kInvalidArgument, "{} is not an absolute path", path);
  }
  const std::string& drop_in = options.settings.drop_in;
  if (!drop_in.empty() && !drop_in.starts_with('/')) {
    return Error(Code::kInvalidArgument, "--drop-in-config {} is not an absolute path", drop_in);
  }
  if (flags.runtime_name.empty()) {
    return Error(Code::kInvalidArgument, "--runtime-name must not be empty");
  }
  if (!flags.undo) RETURN_IF_ERROR(CheckRuntimePath(flags));
  if (flags.undo && flags.install) {
    return Error(Code::kInvalidArgument, "--undo and --install exclude each other");
  }
  if (flags.guard && (flags.undo || flags.install || flags.dry_run)) {
    return Error(
        Code::kInvalidArgument,
        "--guard excludes --undo, --install and --dry-run: it configures nothing by itself");
  }
  return Status::Ok();
}

// Installs and checks the runtime before the engine is configured to use it.
Status PrepareHost(const ConfigureFlags& flags, const HostRoot& host,
                   std::vector<std::string>* notes) {
  if (flags.install && !flags.dry_run) {
    ASSIGN_OR_RETURN(const bool copied, InstallProgram(host, "/proc/self/exe", flags.runtime_path));
    std::error_code error;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return Status::FromErrno("/proc/self/exe", error.value());
    ASSIGN_OR_RETURN(const bool libraries, InstallLibraries(host, program, flags.runtime_path));
    if (copied || libraries) notes->push_back(flags.runtime_path + " installed");
  }
  if (flags.install && flags.dry_run) return Status::Ok();
  if (flags.runtime_path.starts_with('/') && !host.Exists(flags.runtime_path)) {
    return Error(
        Code::kFailedPrecondition,
        "{} does not exist{}, so no container would start: use --install, or mount its directory",
        flags.runtime_path, host.IsOwnRoot() ? "" : " below " + host.root());
  }
  if ((flags.install || flags.settings.AnySet()) && !flags.dry_run) {
    ASSIGN_OR_RETURN(const bool changed,
                     WriteRuntimeSettings(host, flags.runtime_config, flags.settings));
    if (changed) notes->push_back(flags.runtime_config + " written");
  }
  return Status::Ok();
}

// The directory of the driver file trees; empty if the runtime makes none.
Result<std::string> TreeDirOf(const ConfigureFlags& flags, const HostRoot& host) {
  ASSIGN_OR_RETURN(const std::optional<FileState> state, host.Read(flags.runtime_config));
  if (!state) return std::string(names::kDriverTreeDir);
  ASSIGN_OR_RETURN(const Json settings, ParseToml(state->text));
  const Json* const dir = FindPath(settings, {"driver-tree-dir"});
  if (dir == nullptr || !dir->is_string()) return std::string(names::kDriverTreeDir);
  return dir->string_value();
}

// Unmounts the driver file trees, which only new containers need. Keeps them if another engine uses
// the runtime.
Status UnmountDriverTrees(const ConfigureFlags& flags, const HostRoot& host,
                          std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(const std::string dir, TreeDirOf(flags, host));
  if (dir.empty() || !host.Exists(dir + "/trees")) return Status::Ok();
  for (const EngineKind engine :
       {EngineKind::kContainerd, EngineKind::kDocker, EngineKind::kCrio}) {
    const std::string config = DefaultPathsOf(engine).config;
    if (!host.Exists(RecordPath(config))) continue;
    notes->push_back(fmt::format("{}/trees stays: {} still has the runtime", dir, config));
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(const std::string real, host.Resolve(dir));
  ASSIGN_OR_RETURN(const size_t trees, oci::DropSharedTrees(real));
  notes->push_back(fmt::format("{}/trees: {} unmounted", dir, trees));
  return Status::Ok();
}

// Whether the driver is loaded, or the PCI bus has a display controller (class 0x03) of NVIDIA
// (vendor 0x10de).
bool HasGpu() {
  const HostRoot machine("");
  if (machine.Exists("/proc/driver/nvidia/version")) return true;
  const auto begins_with = [](const std::string& file, std::string_view start) {
    return ReadFile(file, 64).value_or("").starts_with(start);
  };
  for (const std::string& device : machine.Glob("/sys/bus/pci/devices/*")) {
    if (begins_with(device + "/vendor", "0x10de") && begins_with(device + "/class", "0x03"))
      return true;
  }
  return false;
}

// Waits a random time if the engine's files must be changed.
Status DelayForSpread(const ConfigureFlags& flags, const ConfigureOptions& options,
                      const HostRoot& host) {
  if (flags.spread_s <= 0 || flags.dry_run || flags.undo) return Status::Ok();
  ConfigureOptions dry_run = options;
  dry_run.dry_run = true;
  ASSIGN_OR_RETURN(const Outcome outcome, Configurator(std::move(dry_run), &host).Configure());
  if (!outcome.changed) return Status::Ok();
  uint32_t random = 0;
  TESSERA_CHECK(::getrandom(&random, sizeof(random), 0) == sizeof(random));
  const auto wait = std::chrono::milliseconds(
      static_cast<int64_t>(flags.spread_s * 1000 * (random / 4294967296.0)));
  Log(Severity::kInfo, "waiting before the engine restart, so that not all nodes restart at once",
      {{"wait_ms", wait.count()}});
  ::poll(nullptr, 0, static_cast<int>(wait.count()));
  return Status::Ok();
}

// Forks a child to do the work. If the child is killed, the parent does the work again, which
// finishes or undoes the interrupted run. Returns the exit code in the parent, and nullopt to the
// process that has to do the work.
std::optional<int> RunInSupervisedChild() {
  // If the caller ignored SIGCHLD, the kernel would reap the child, and waitpid(2) never return it.
  ::signal(SIGCHLD, SIG_DFL);
  // sigwaitinfo(2) takes only blocked signals. The child inherits the mask and must restore it.
  sigset_t forwarded;
  sigset_t before;
  ::sigemptyset(&forwarded);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&forwarded, signal);
  ::sigprocmask(SIG_BLOCK, &forwarded, &before);
  const pid_t child = ::fork();
  if (child <= 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return std::nullopt;  // the child, or the parent if fork failed
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) != child) {
    const int signal = ::sigwaitinfo(&forwarded, nullptr);
    if (signal > 0 && signal != SIGCHLD) ::kill(child, signal);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  // A user stopped the work with these signals, so the parent does not finish it.
  if (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT) return 128 + WTERMSIG(status);
  Log(Severity::kError,
      "the configuring process was killed: its parent finishes or undoes the change",
      {{"signal", WTERMSIG(status)}});
  return std::nullopt;
}

Result<Outcome> Run(const ConfigureFlags& flags) {
  const HostRoot host(flags.host_root);
  ConfigureOptions options = ToOptions(flags, host);
  RETURN_IF_ERROR(CheckFlags(flags, options));
  if (flags.guard) GuardEngine([&] { return ToOptions(flags, host); }, &host);
  if (flags.only_with_gpu && !HasGpu()) {
    return Outcome{.notes = {"this node has no NVIDIA GPU: nothing to change"}};
  }
  std::vector<std::string> notes;
  if (!flags.undo) RETURN_IF_ERROR(PrepareHost(flags, host, &notes));
  RETURN_IF_ERROR(DelayForSpread(flags, options, host));
  Configurator configurator(std::move(options), &host);
  ASSIGN_OR_RETURN(Outcome outcome, flags.undo ? configurator.Undo() : configurator.Configure());
  outcome.notes.insert(outcome.notes.begin(), notes.begin(), notes.end());
  if (flags.undo && !flags.dry_run) {
    // The undo is complete even if this fails.
    const Status dropped = UnmountDriverTrees(flags, host, &outcome.notes);
    if (!dropped.ok()) outcome.notes.push_back(dropped.message());
  }
  return outcome;
}

}  // namespace

int ConfigureMain(int argc, char** argv) {
  const std::ios_base::Init streams;  // for CLI11, see ../lazy_iostream.h
  ConfigureFlags flags;
  CLI::App app("Makes a container engine use tessera-runtime; --undo reverts that",
               "tessera-runtime configure");
  app.set_version_flag("--version", fmt::format("tessera-runtime: {}", kTesseraVersion),
                       "Print the version and exit");
  AddEngineFlags(&app, &flags);
  AddRunAndInstallFlags(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : InfoOf(Code::kInvalidArgument).exit_code;
  }
  if (!flags.dry_run && !flags.guard) {
    const pid_t parent = ::getpid();
    if (const std::optional<int> code = RunInSupervisedChild()) return *code;
    // The parent of a killed child does not wait again.
    if (::getpid() == parent) flags.spread_s = 0;
  }
  const auto outcome = Run(flags);
  if (!outcome.ok()) {
    Log(Severity::kError, outcome.status().message());
    return InfoOf(outcome.status().code()).exit_code;
  }
  for (const std::string& note : outcome->notes) Log(Severity::kInfo, note);
  if (flags.dry_run) std::fputs(outcome->diff.c_str(), stdout);
  Log(Severity::kInfo, !outcome->changed ? "nothing to change"
                       : flags.dry_run   ? "would change, see the diff"
                                         : "done");
  return 0;
}

}  // namespace tessera::engine
