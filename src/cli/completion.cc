// SPDX-License-Identifier: Apache-2.0
#include "src/cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/cli/cluster_client.h"
#include "src/cli/options.h"
#include "src/cli/output/text.h"
#include "src/cli/session.h"
#include "src/cli/verbs.h"
#include "src/formats/json.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

constexpr Duration kCompletionTimeout = std::chrono::seconds(3);

constexpr const char* kBash = R"(# bash completion of tessera: source <(tessera completion bash)
_tessera() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$line")
  done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -F _tessera tessera
)";
constexpr const char* kZsh = R"(#compdef tessera
# zsh completion of tessera: source <(tessera completion zsh)
_tessera() {
  local -a candidates
  candidates=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -- ${candidates:#}
}
compdef _tessera tessera
)";
constexpr const char* kFish = R"(# fish completion of tessera: tessera completion fish | source
function __tessera_complete
  set -l words (commandline -opc)
  $words[1] __complete $words[2..] (commandline -ct) 2>/dev/null
end
complete -c tessera -f -a '(__tessera_complete)'
)";

// The command line before the word to complete.
struct TypedWords {
  CLI::App* verb = nullptr;                     // null: no verb yet
  const CLI::Option* pending_option = nullptr;  // the word is the value of this option
  std::map<std::string, std::string> options;   // by long name
  size_t positionals = 0;
};

const CLI::Option* FindOption(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(name);
}

std::string LongNameOf(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames()[0];
}

TypedWords ParseWords(CLI::App* app, const std::vector<std::string>& words) {
  TypedWords typed;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (typed.pending_option != nullptr) {
      typed.options[LongNameOf(*std::exchange(typed.pending_option, nullptr))] = word;
      continue;
    }
    if (typed.verb == nullptr) {
      const auto named = app->get_subcommands(
          [&](CLI::App* sub) { return sub->get_name() == ResolveSynonym(word); });
      typed.verb = named.empty() ? nullptr : named[0];
      continue;
    }
    if (!word.starts_with('-')) {
      ++typed.positionals;
      continue;
    }
    const size_t equals = word.find('=');
    const CLI::Option* option = FindOption(*typed.verb, word.substr(0, equals));
    if (option == nullptr || option->get_items_expected_min() == 0) continue;
    if (equals != std::string::npos) {
      typed.options[LongNameOf(*option)] = word.substr(equals + 1);
    } else {
      typed.pending_option = option;
    }
  }
  return typed;
}

ClusterOptions ClusterOf(const TypedWords& typed) {
  const auto value = [&](const char* name) {
    const auto found = typed.options.find(name);
    return found == typed.options.end() ? std::string() : found->second;
  };
  return {.kubeconfig = value("kubeconfig"), .context = value("context"), .timeout_s = 3};
}

std::vector<std::string> ObjectNames(const TypedWords& typed, const kube::ResourceType& type) {
  const ClusterOptions cluster = ClusterOf(typed);
  Result<kube::Config> config = ConfigOf(cluster);
  if (!config.ok()) return {};
  const auto ns = typed.options.find("namespace");
  const std::string wanted = ns == typed.options.end() ? config->default_namespace : ns->second;
  ClusterClient api(*std::move(config), cluster.timeout(), kCompletionTimeout);
  Result<std::vector<Json>> objects = std::vector<Json>();
  api.ReadList({.type = type, .ns = type.namespaced ? wanted : ""}, &objects);
  api.Wait(kCompletionTimeout);
  std::vector<std::string> names;
  if (!objects.ok()) return names;
  for (const Json& object : *objects) names.push_back(TextAt(object, {"metadata", "name"}));
  return names;
}

std::vector<std::string> ContextNames(const TypedWords& typed) {
  const KubeconfigFiles files = FindKubeconfig(ClusterOf(typed).kubeconfig, ::getenv);
  std::vector<std::string_view> paths = {files.paths};
  if (files.is_list) paths = SplitList(files.paths, ':');
  std::vector<std::string> names;
  for (const std::string_view path : paths) {
    const Result<std::string> text = ReadFile(std::string(path));
    const Result<Json> config = text.ok() ? ParseYaml(*text) : Result<Json>(text.status());
    if (!config.ok()) continue;
    for (const Json& context : ItemsAt(*config, {"contexts"})) {
      names.push_back(context.StringAt("name").value_or(""));
    }
  }
  return names;
}

std::vector<std::string> ValuesOf(const TypedWords& typed, const std::string& option) {
  if (option == "output") {
    return {"table", "wide", "json", "yaml", "name", "jsonpath=", "custom-columns="};
  }
  if (option == "namespace") return ObjectNames(typed, kube::kNamespaces);
  return option == "context" ? ContextNames(typed) : std::vector<std::string>();
}

// The first positional argument of a verb: a node, a pod or a fixed word.
std::vector<std::string> ArgumentValues(const TypedWords& typed) {
  if (typed.positionals > 0) return {};
  if (typed.verb->get_name() == "completion") return {"bash", "zsh", "fish"};
  if (FindOption(*typed.verb, "NODE") != nullptr) return ObjectNames(typed, kube::kNodes);
  if (FindOption(*typed.verb, "POD") != nullptr) return ObjectNames(typed, kube::kPods);
  return {};
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> VerbNames() {
  std::vector<std::string> names;
  for (const Verb& verb : Verbs()) names.emplace_back(verb.name);
  return names;
}

}  // namespace

std::vector<std::string> Complete(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  Action action;
  const std::unique_ptr<CLI::App> app = MakeCommandLine("tessera", &action);
  const TypedWords typed = ParseWords(app.get(), words);
  const std::string& last = words.back();
  const size_t equals = last.find('=');
  std::vector<std::string> candidates;
  std::string prefix;
  if (typed.pending_option != nullptr) {
    candidates = ValuesOf(typed, LongNameOf(*typed.pending_option));
  } else if (typed.verb != nullptr && last.starts_with("--") && equals != std::string::npos) {
    prefix = last.substr(0, equals + 1);
    candidates = ValuesOf(typed, last.substr(2, equals - 2));
  } else if (last.starts_with('-')) {
    candidates = OptionNames(typed.verb != nullptr ? *typed.verb : *app);
  } else {
    candidates = typed.verb == nullptr ? VerbNames() : ArgumentValues(typed);
  }
  for (std::string& candidate : candidates) candidate.insert(0, prefix);
  std::erase_if(candidates,
                [&](const std::string& candidate) { return !candidate.starts_with(last); });
  return candidates;
}

int RunComplete(int argc, const char* const* argv) {
  for (const std::string& candidate : Complete({argv + 2, argv + std::max(argc, 2)})) {
    std::puts(Printable(candidate).c_str());
  }
  return 0;
}

int RunKubectlComplete(int argc, const char* const* argv) {
  for (const std::string& candidate : Complete({argv + 1, argv + std::max(argc, 1)})) {
    std::puts(Printable(candidate).c_str());
  }
  std::puts(":4");  // kubectl's directive not to complete file names
  return 0;
}

Action AddCompletion(CLI::App* app) {
  auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->footer(
      "To use it now: source <(tessera completion bash). For all sessions: tessera completion bash "
      "> /etc/bash_completion.d/tessera");
  return [shell] { return PrintOut(*shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish); };
}

}  // namespace tessera::cli
