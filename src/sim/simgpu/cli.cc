// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/cli.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "src/base/parse_flags.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/version.h"
#include "src/sim/simgpu/driver_root.h"
#include "src/sim/simgpu/inject.h"
#include "src/sim/simgpu/known_names.h"
#include "src/sim/simgpu/show.h"
#include "src/sim/simgpu/state_server.h"
#include "src/sim/state.h"

namespace tessera::sim {
namespace {

constexpr const char* kDefaultRoot = "/run/nvidia/driver";

struct SimgpuFlags {
  std::string root = kDefaultRoot;
  std::string dev_root;
  std::string profile = "a100-sxm4-80gb";
  std::string name;
  std::string library_dir;
  uint32_t gpus = 0;
  bool force = false;
  bool device_nodes = false;
  bool device_files = false;
  bool only_uuids = false;
  std::string output = "text";
  int32_t gpu = 0;
  std::string gpu_or_all = "all";
  uint64_t xid = 79;
  uint64_t corrected = 0, uncorrected = 0;
  Repairs repairs;
  std::string function;
  std::string nvml_error = "GPU_IS_LOST";
  uint64_t after = 0, times = 0;
  uint32_t value = 0;
  std::string printed_profile;
  std::string mig_mode = "on";
};

using SimgpuAction = std::function<Status()>;

std::string HostName() {
  char name[64] = "node";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// CLI11's own message for a text that is not a number is "Could not convert: --gpu = abc".
CLI::Validator WholeNumber() {
  const auto check = [](const std::string& text) -> std::string {
    const Result<int64_t> number = ParseInt(text);
    if (number.ok() && *number >= 0) return "";
    return fmt::format("invalid value \"{}\": want a whole number, 0 or more", text);
  };
  return CLI::Validator(check, "", "");
}

// Programs on a node keep its files mapped; after a replacement, new programs would see other GPUs.
Status CheckMayReplaceNode(const SimgpuFlags& flags) {
  if (flags.force) return {};
  State state;
  if (state.Open(StateDir(flags.root)) != 0) return {};
  return Error(Code::kAlreadyExists,
               "{} already has {} x {}: remove it with \"simgpu destroy\", or replace it with "
               "--force, even if programs run on it",
               flags.root, state.gpu_count(), state.file().profile);
}

Status Create(const SimgpuFlags& flags) {
  RETURN_IF_ERROR(CheckMayReplaceNode(flags));
  DriverRootOptions options;
  ASSIGN_OR_RETURN(options.profile, LoadProfile(flags.profile));
  if (flags.gpus != 0) options.profile.gpus = flags.gpus;
  options.node_name = flags.name.empty() ? HostName() : flags.name;
  options.root = flags.root;
  options.dev_root = flags.dev_root;
  options.library_dir = flags.library_dir;
  options.device_files = flags.device_nodes   ? DeviceFiles::kNodes
                         : flags.device_files ? DeviceFiles::kPlain
                                              : DeviceFiles::kNone;
  RETURN_IF_ERROR(CreateDriverRoot(options));
  fmt::print("{}: {} x {} at {}\n", options.node_name, options.profile.gpus,
             options.profile.gpu.name, options.root);
  return {};
}

// Opens the state for `body`. `wants_write`: `body` changes the state.
Status WithState(const SimgpuFlags& flags, bool wants_write,
                 const std::function<Status(State*)>& body) {
  State state;
  if (const int error = state.Open(StateDir(flags.root)); error != 0) {
    return Error(Code::kNotFound,
                 "no simulated node at {} ({}): create it with \"simgpu create\", or "
                 "set --root or $SIMGPU_ROOT",
                 flags.root, strerror(error));
  }
  if (wants_write && !state.writable()) {
    return Error(Code::kPermissionDenied,
                 "cannot write {}/state: permission denied: run as its owner", state.dir());
  }
  return body(&state);
}

Status CheckGpu(const State& state, int32_t gpu) {
  if (gpu >= 0 && uint32_t(gpu) < state.gpu_count()) return {};
  return Error(Code::kOutOfRange, "no GPU {}: want 0 to {}", gpu, state.gpu_count() - 1);
}

using StateChange = std::function<Status(State*, uint32_t)>;

// An action that applies `change` to one GPU.
SimgpuAction MakeGpuAction(const SimgpuFlags& flags, StateChange change) {
  return [&flags, change] {
    return WithState(flags, /*wants_write=*/true, [&](State* state) -> Status {
      RETURN_IF_ERROR(CheckGpu(*state, flags.gpu));
      return change(state, uint32_t(flags.gpu));
    });
  };
}

// Turns a function without a result into a StateChange that succeeds.
template <typename Function>
StateChange AsStateChange(Function function) {
  return [function](State* state, uint32_t gpu) {
    function(state, gpu);
    return Status();
  };
}

// Parses "all" or the index of a GPU.
Result<int32_t> GpuOrAll(const State& state, const std::string& text) {
  if (text == "all") return kAllGpus;
  const Result<int64_t> index = ParseInt(text);
  if (!index.ok() || *index != int32_t(*index)) {
    return Error(Code::kInvalidArgument, "invalid --gpu \"{}\": want an index or \"all\"", text);
  }
  RETURN_IF_ERROR(CheckGpu(state, int32_t(*index)));
  return int32_t(*index);
}

Status AddFault(const SimgpuFlags& flags, bool hang) {
  return WithState(flags, /*wants_write=*/true, [&](State* state) -> Status {
    RETURN_IF_ERROR(CheckNvmlFunction(flags.function));
    ASSIGN_OR_RETURN(const int32_t gpu, GpuOrAll(*state, flags.gpu_or_all));
    uint32_t result = 0;
    if (!hang) {
      ASSIGN_OR_RETURN(result, NvmlResultFromText(flags.nvml_error));
    }
    const int error =
        state->AddFault(flags.function.c_str(), gpu, result, hang, flags.after, flags.times);
    return error == 0 ? Status() : Status::FromErrno("add the failure of " + flags.function, error);
  });
}

void AddNodeCommands(CLI::App* app, SimgpuFlags* flags, SimgpuAction* action) {
  CLI::App* create =
      app->add_subcommand("create", "Create a node: driver root, state, device files");
  create->add_option("--profile", flags->profile, "Built-in profile, or a YAML file")
      ->capture_default_str();
  create->add_option("--gpus", flags->gpus, "Number of GPUs; default: as in the profile")
      ->check(WholeNumber())
      ->check(CLI::Range(1u, kMaxGpus));
  create->add_option("--name", flags->name,
                     "Name of the node, from which UUIDs derive; default: the host's");
  create->add_option("--library-dir", flags->library_dir,
                     "Folder of the simulated libcuda.so.1 and libnvidia-ml.so.1");
  create->add_option("--dev-root", flags->dev_root, "Create device files in DIR/dev")
      ->envname("SIMGPU_DEV_ROOT");
  auto* nodes = create->add_flag("--device-nodes", flags->device_nodes,
                                 "Create /dev/nvidia0 … as character devices (root)");
  create->add_flag("--device-files", flags->device_files, "Create device files as plain files")
      ->excludes(nodes);
  create->add_flag("--force", flags->force, "Replace an existing node, even if programs run on it");
  create->callback([=] { *action = [flags] { return Create(*flags); }; });

  CLI::App* destroy = app->add_subcommand("destroy", "Remove the node and its device files");
  destroy
      ->add_option("--dev-root", flags->dev_root,
                   "Also remove device files of these GPUs in DIR/dev that \"create\" did not make")
      ->envname("SIMGPU_DEV_ROOT");
  destroy->callback(
      [=] { *action = [flags] { return DestroyDriverRoot(flags->root, flags->dev_root); }; });

  CLI::App* serve = app->add_subcommand(
      "serve", "Give the node to containers that get the driver from NVIDIA's container toolkit");
  serve->callback([=] {
    *action = [flags] { return ServeState(flags->root, BlockSignals({SIGINT, SIGTERM})); };
  });

  CLI::App* profiles = app->add_subcommand("profiles", "List the built-in profiles, or print one");
  profiles->add_option("NAME", flags->printed_profile,
                       "Print this profile, as a template for your own");
  profiles->callback([=] {
    *action = [flags]() -> Status {
      if (flags->printed_profile.empty()) {
        for (const std::string& name : ProfileNames()) fmt::print("{}\n", name);
        return {};
      }
      ASSIGN_OR_RETURN(const std::string text, ProfileText(flags->printed_profile));
      fmt::print("{}", text);
      return {};
    };
  });
}

void AddViewCommands(CLI::App* app, SimgpuFlags* flags, SimgpuAction* action) {
  CLI::App* show = app->add_subcommand("show", "Show GPUs, processes and injected failures");
  show->add_option("-o,--output", flags->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  show->add_flag("--uuids", flags->only_uuids, "Only the UUIDs, one line each");
  show->callback([=] {
    *action = [flags] {
      return WithState(*flags, /*wants_write=*/false, [&](State* state) -> Status {
        fmt::print("{}", flags->only_uuids         ? ShowUuids(*state)
                         : flags->output == "json" ? ShowJson(state)
                                                   : ShowText(state));
        return {};
      });
    };
  });
  CLI::App* unimplemented =
      app->add_subcommand("unimplemented", "List refused calls, and kernels that computed nothing");
  unimplemented->callback([=] {
    *action = [flags] {
      return WithState(*flags, /*wants_write=*/false, [](State* state) -> Status {
        fmt::print("{}", ShowUnimplemented(*state));
        return {};
      });
    };
  });
}

// Adds a command that changes the GPU of --gpu.
CLI::App* AddGpuCommand(CLI::App* parent, SimgpuFlags* flags, SimgpuAction* action,
                        const char* name, const char* help, StateChange change) {
  CLI::App* command = parent->add_subcommand(name, help);
  command->add_option("--gpu", flags->gpu, "Index of the GPU")->required()->check(WholeNumber());
  command->callback([=] { *action = MakeGpuAction(*flags, change); });
  return command;
}

// Adds a command that sets a value of a GPU. Without the command, the value derives from the load.
void AddValueCommand(CLI::App* inject, SimgpuFlags* flags, SimgpuAction* action, const char* name,
                     const char* help, uint32_t highest, uint32_t factor,
                     AtomicU32 SimGpuState::*member) {
  AddGpuCommand(inject, flags, action, name, help, AsStateChange([=](State* state, uint32_t gpu) {
                  state->gpu_state(gpu).*member = flags->value * factor;
                  state->UpdateThrottling(gpu);
                }))
      ->add_option("--value", flags->value, "The value")
      ->required()
      ->check(WholeNumber())
      ->check(CLI::Range(0u, highest));
}

void AddFaultCommand(CLI::App* inject, SimgpuFlags* flags, SimgpuAction* action, bool hang) {
  CLI::App* command =
      inject->add_subcommand(hang ? "nvml-hang" : "nvml-fail",
                             hang ? "Calls of an NVML function do not return until \"clear\""
                                  : "Calls of an NVML function fail");
  command
      ->add_option("FUNCTION", flags->function,
                   "A function such as nvmlDeviceGetMemoryInfo; * is every function")
      ->required();
  command->add_option("--gpu", flags->gpu_or_all, "Index of the GPU, or all")
      ->capture_default_str();
  if (!hang)
    command->add_option("--code", flags->nvml_error, "NVML error, name or number")
        ->capture_default_str();
  command->add_option("--after", flags->after, "Number of calls that succeed first")
      ->check(WholeNumber());
  command->add_option("--times", flags->times, "Number of calls that fail or hang; 0: all")
      ->check(WholeNumber());
  command->callback([=] { *action = [=] { return AddFault(*flags, hang); }; });
}

void AddEventCommands(CLI::App* inject, SimgpuFlags* flags, SimgpuAction* action) {
  AddGpuCommand(inject, flags, action, "xid", "Report an XID",
                [=](State* state, uint32_t gpu) -> Status {
                  RETURN_IF_ERROR(CheckXid(flags->xid));
                  InjectXid(state, gpu, flags->xid);
                  return {};
                })
      ->add_option("--code", flags->xid, "Number of the XID, from NVIDIA's catalog")
      ->check(WholeNumber())
      ->capture_default_str();
  AddGpuCommand(inject, flags, action, "lost", "The GPU falls off the bus (XID 79)",
                AsStateChange(InjectLost));
  AddGpuCommand(inject, flags, action, "recover", "The GPU is healthy again",
                AsStateChange(Recover));
  AddGpuCommand(
      inject, flags, action, "mig", "Turn MIG mode on or off, and destroy all MIG instances",
      [=](State* state, uint32_t gpu) -> Status {
        if (state->facts(gpu).mig_capable == 0) {
          return Error(Code::kFailedPrecondition,
                       "GPU {} does not support MIG: use a profile with A100 or newer", gpu);
        }
        const int error = state->ForceMigMode(gpu, flags->mig_mode == "on");
        return error == 0 ? Status()
                          : Status::FromErrno(fmt::format("set MIG mode of GPU {}", gpu), error);
      })
      ->add_option("--mode", flags->mig_mode, "on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
}

void AddMemoryErrorCommands(CLI::App* inject, SimgpuFlags* flags, SimgpuAction* action) {
  CLI::App* ecc = AddGpuCommand(
      inject, flags, action, "ecc", "Add memory errors; uncorrected errors end contexts",
      [=](State* state, uint32_t gpu) -> Status {
        if (flags->corrected == 0 && flags->uncorrected == 0) {
          return Error(Code::kInvalidArgument,
                       "no memory errors to inject: set --corrected or --uncorrected");
        }
        InjectEcc(state, gpu, flags->corrected, flags->uncorrected);
        return {};
      });
  ecc->add_option("--corrected", flags->corrected, "Number of errors")->check(WholeNumber());
  ecc->add_option("--uncorrected", flags->uncorrected, "Number of errors")->check(WholeNumber());
  CLI::App* rows =
      AddGpuCommand(inject, flags, action, "rows", "Remap rows of memory; on a T4, retire pages",
                    [=](State* state, uint32_t gpu) -> Status {
                      const Repairs& repairs = flags->repairs;
                      if (repairs.correctable == 0 && repairs.uncorrectable == 0 &&
                          !repairs.pending && !repairs.failed) {
                        return Error(Code::kInvalidArgument,
                                     "no repairs to inject: set --correctable, "
                                     "--uncorrectable, --pending or --failed");
                      }
                      if (repairs.failed && state->facts(gpu).row_banks == 0) {
                        return Error(Code::kFailedPrecondition,
                                     "GPU {} retires pages, which cannot fail: use a "
                                     "profile with A100 or newer",
                                     gpu);
                      }
                      InjectRepairs(state, gpu, repairs);
                      return {};
                    });
  rows->add_option("--correctable", flags->repairs.correctable, "Number after corrected errors")
      ->check(WholeNumber());
  rows->add_option("--uncorrectable", flags->repairs.uncorrectable,
                   "Number after uncorrected errors")
      ->check(WholeNumber());
  rows->add_flag("--pending", flags->repairs.pending, "A repair waits for a reset (recover)");
  rows->add_flag("--failed", flags->repairs.failed,
                 "A repair failed, because no spare row was left (XID 64)");
}

void AddClearCommand(CLI::App* inject, SimgpuFlags* flags, SimgpuAction* action) {
  CLI::App* clear =
      inject->add_subcommand("clear", "Undo all injected failures, on all GPUs or one");
  clear->add_option("--gpu", flags->gpu_or_all, "Index of the GPU, or all")->capture_default_str();
  clear->callback([=] {
    *action = [flags] {
      return WithState(*flags, /*wants_write=*/true, [&](State* state) -> Status {
        ASSIGN_OR_RETURN(const int32_t only, GpuOrAll(*state, flags->gpu_or_all));
        if (only == kAllGpus) state->ClearFaults(nullptr, kAllGpus);
        for (uint32_t gpu = 0; gpu < state->gpu_count(); ++gpu) {
          if (only == kAllGpus || uint32_t(only) == gpu) Recover(state, gpu);
        }
        return {};
      });
    };
  });
}

void AddInjectCommands(CLI::App* app, SimgpuFlags* flags, SimgpuAction* action) {
  CLI::App* inject = app->add_subcommand("inject", "Inject a failure into a running node");
  inject->require_subcommand(1);
  AddEventCommands(inject, flags, action);
  AddMemoryErrorCommands(inject, flags, action);
  AddValueCommand(inject, flags, action, "temperature", "Set the temperature, °C", 200, 1,
                  &SimGpuState::temperature_c);
  AddValueCommand(inject, flags, action, "power", "Set the power draw, W", 5000, 1000,
                  &SimGpuState::power_mw);
  AddValueCommand(inject, flags, action, "utilization", "Set the utilization, %", 100, 1,
                  &SimGpuState::utilization_gpu);
  AddFaultCommand(inject, flags, action, /*hang=*/false);
  AddFaultCommand(inject, flags, action, /*hang=*/true);
  AddClearCommand(inject, flags, action);
  AddGpuCommand(app, flags, action, "recover", "The same as \"inject recover\"",
                AsStateChange(Recover));
}

}  // namespace

int RunSimgpu(int argc, char** argv) {
  CLI::App app("Creates and shows simulated GPU nodes, and injects failures", "simgpu");
  SimgpuFlags flags;
  SimgpuAction action;
  app.set_version_flag("--version", std::string(kTesseraVersion));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--root", flags.root, "Driver root of the node")
      ->envname("SIMGPU_ROOT")
      ->capture_default_str();
  AddNodeCommands(&app, &flags, &action);
  AddViewCommands(&app, &flags, &action);
  AddInjectCommands(&app, &flags, &action);
  app.footer(
      "Example:\n  simgpu create --profile h100-sxm5-80gb --gpus 8 --root /tmp/node/driver\n"
      "  simgpu inject xid --gpu 3 --code 79 --root /tmp/node/driver");
  if (const auto done = ParseFlags(&app, argc, argv)) return *done;
  const Status status = action();
  if (status.ok()) return 0;
  fmt::print(stderr, "simgpu: {}\n", status.message());
  return InfoOf(status.code()).exit_code;
}

}  // namespace tessera::sim
