// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "src/base/strings.h"
#include "src/formats/json_reader.h"
#include "src/ledger/pod_request.h"

namespace tessera::scheduler {
namespace {

// Compares ASCII keys without case. The types of k8s.io/kube-scheduler/extender/v1 have no JSON
// tags: Go writes the names of their fields, and reads them in any case.
bool KeyIs(std::string_view key, std::string_view name) {
  if (key.size() != name.size()) return false;
  for (size_t i = 0; i < key.size(); ++i) {
    if ((key[i] | 0x20) != (name[i] | 0x20)) return false;
  }
  return true;
}

// A pod has some kilobytes. Longer texts are not kept, and their pods are decoded at each request.
constexpr size_t kMaxKeptPodBytes = 256 << 10;

Status ReadPod(std::string_view text, kube::PodObject* out) {
  static const kube::KeptFields kept = ledger::KeptPodFields();
  ASSIGN_OR_RETURN(Json json, ParseJson(text));
  if (!json.is_object()) return Error(Code::kInvalidArgument, "Pod: not an object");
  *out = {};
  RETURN_IF_ERROR(kube::DecodeObject(kube::RawObject(std::move(json)), kept, out).Annotate("Pod"));
  if (out->meta.uid.empty()) return Error(Code::kInvalidArgument, "Pod: metadata.uid is missing");
  return {};
}

// Reads metadata.name of a node from its text; empty if missing. API servers write metadata before
// spec and status, so the rest of the text is not read.
std::string_view ReadNodeName(std::string_view node, std::deque<std::string>* unescaped,
                              std::string_view* quoted) {
  JsonReader reader(node, unescaped);
  std::string_view key;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (key != "metadata") {
      reader.Skip();
      continue;
    }
    for (reader.BeginObject(); reader.NextMember(&key);) {
      if (key == "name") return reader.String(quoted);
      reader.Skip();
    }
  }
  return {};
}

Status TooManyNodes() {
  return Error(Code::kInvalidArgument, "more than {} nodes in one request", kMaxNodes);
}

Status ReadNames(JsonReader& reader, ExtenderArgs* out) {
  out->node_names.clear();
  out->quoted_names.clear();
  out->node_texts.clear();
  out->has_nodes = false;
  if (!reader.BeginArray()) return {};
  reader.Strings(kMaxNodes + 1, &out->node_names, &out->quoted_names);
  return out->node_names.size() > kMaxNodes ? TooManyNodes() : Status();
}

// Reads a NodeList or null.
Status ReadNodes(JsonReader& reader, ExtenderArgs* out) {
  if (reader.TakeNull()) return {};
  std::string_view key;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (!KeyIs(key, "items")) {
      reader.Skip();
    } else if (!reader.TakeNull()) {
      for (reader.BeginArray(); reader.NextItem();) {
        out->node_texts.push_back(reader.Skip());
        if (out->node_texts.size() > kMaxNodes) return TooManyNodes();
      }
    }
  }
  RETURN_IF_ERROR(reader.status());
  out->has_nodes = true;
  out->node_names.clear();
  out->quoted_names.clear();
  for (const std::string_view node : out->node_texts) {
    std::string_view quoted;
    out->node_names.push_back(ReadNodeName(node, &out->unescaped_names, &quoted));
    out->quoted_names.push_back(quoted);
    if (out->node_names.back().empty()) {
      return Error(Code::kInvalidArgument, "Nodes.items[{}]: metadata.name is missing",
                   out->node_names.size() - 1);
    }
  }
  return {};
}

void ReadVictims(JsonReader& reader, Victims* out) {
  if (reader.TakeNull()) return;
  std::string_view node, key;
  for (reader.BeginObject(); reader.NextMember(&node);) {
    ledger::ClusterLedger::Eviction& victims = (*out)[std::string(node)];
    if (reader.TakeNull()) continue;
    for (reader.BeginObject(); reader.NextMember(&key);) {
      if (KeyIs(key, "NumPDBViolations")) {
        victims.pdb_violations = reader.Int();
      } else if (KeyIs(key, "Pods") && !reader.TakeNull()) {
        // {"UID":…}, or whole pods.
        for (reader.BeginArray(); reader.NextItem();) {
          for (reader.BeginObject(); reader.NextMember(&key);) {
            if (KeyIs(key, "UID")) {
              victims.uids.emplace_back(reader.String());
            } else if (key == "metadata") {
              for (reader.BeginObject(); reader.NextMember(&key);) {
                key == "uid" ? void(victims.uids.emplace_back(reader.String()))
                             : void(reader.Skip());
              }
            } else {
              reader.Skip();
            }
          }
        }
      } else if (!KeyIs(key, "Pods")) {
        reader.Skip();
      }
    }
  }
}

void AppendKey(std::string_view key, std::string* out) {
  AppendJsonString(key, out);
  *out += ':';
}

// Quotes each distinct reason once.
class QuotedReasons {
 public:
  void Append(std::string_view reason, std::string* out) {
    Entry& entry = entries_[(reinterpret_cast<uintptr_t>(reason.data()) >> 4) % entries_.size()];
    // Compares addresses: the extender stores each distinct reason once.
    if (entry.reason.data() != reason.data() || entry.reason.size() != reason.size()) {
      entry.reason = reason;
      entry.text.clear();
      AppendJsonString(reason, &entry.text);
    }
    *out += entry.text;
  }

 private:
  struct Entry {
    std::string_view reason;
    std::string text;  // as JSON
  };
  std::array<Entry, 64> entries_;
};

void AppendRejections(const ExtenderArgs& args,
                      const std::vector<FilterResult::Rejection>& rejections,
                      QuotedReasons* reasons, std::string* out) {
  *out += '{';
  for (const auto& [position, reason] : rejections) {
    *out += args.quoted_names[position];
    *out += ':';
    reasons->Append(reason, out);
    *out += ',';
  }
  if (out->back() == ',') out->pop_back();
  *out += '}';
}

// Copies runs of adjacent names from the request at once.
void AppendNames(const ExtenderArgs& args, const std::vector<size_t>& positions, std::string* out) {
  for (size_t i = 0; i < positions.size();) {
    const char* const begin = args.quoted_names[positions[i]].data();
    const char* end = begin + args.quoted_names[positions[i]].size();
    for (++i; i < positions.size(); ++i) {
      const std::string_view next = args.quoted_names[positions[i]];
      if (next.data() != end + 1) break;
      end = next.data() + next.size();
    }
    out->append(begin, end).append(",");
  }
  if (!positions.empty()) out->pop_back();
}

}  // namespace

Status ParseExtenderArgs(std::string_view body, ExtenderArgs* out) {
  out->node_names.clear();
  out->quoted_names.clear();
  out->node_texts.clear();
  out->unescaped_names.clear();
  out->has_nodes = false;
  JsonReader reader(body, &out->unescaped_names);
  std::string_view key, pod;
  bool has_names = false;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (KeyIs(key, "Pod")) {
      pod = reader.Skip();
    } else if (KeyIs(key, "NodeNames") && !reader.TakeNull()) {
      has_names = true;
      RETURN_IF_ERROR(ReadNames(reader, out));
    } else if (KeyIs(key, "Nodes") && !has_names) {
      RETURN_IF_ERROR(ReadNodes(reader, out));
    } else if (!KeyIs(key, "NodeNames")) {
      reader.Skip();  // also Nodes after NodeNames: names suffice for the reply
    }
  }
  RETURN_IF_ERROR(reader.Finish());
  if (pod.empty()) return Error(Code::kInvalidArgument, "Pod is missing");
  if (pod == out->pod_text) return {};
  out->pod_text.clear();
  RETURN_IF_ERROR(ReadPod(pod, &out->pod));
  if (pod.size() <= kMaxKeptPodBytes) out->pod_text = pod;
  return {};
}

std::string Serialize(const ExtenderArgs& args, const FilterResult& result) {
  if (!result.error.empty()) return SerializeFilterError(result.error);
  std::string out;
  out.reserve(256 + args.node_names.size() * 32);
  out += "{\"Nodes\":";
  if (args.has_nodes) {
    out += "{\"metadata\":{},\"items\":[";
    for (const size_t position : result.fitting) out.append(args.node_texts[position]).append(",");
    if (out.back() == ',') out.pop_back();
    out += "]}";
  } else {
    out += "null";
  }
  out += ",\"NodeNames\":[";
  AppendNames(args, result.fitting, &out);
  out += "],\"FailedNodes\":";
  QuotedReasons reasons;
  AppendRejections(args, result.failed, &reasons, &out);
  out += ",\"FailedAndUnresolvableNodes\":";
  AppendRejections(args, result.unresolvable, &reasons, &out);
  return out += ",\"Error\":\"\"}";
}

std::string SerializeFilterError(std::string_view error) {
  std::string out =
      R"({"Nodes":null,"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":)";
  AppendJsonString(error, &out);
  return out += '}';
}

std::string SerializePriorities(const ExtenderArgs& args, const std::vector<int>& scores) {
  std::string out = "[";
  constexpr std::string_view kBegin = "{\"Host\":";
  std::array<std::string, kMaxHostScore + 1> endings;
  for (int score = 0; score <= kMaxHostScore; ++score) {
    endings[score] = fmt::format(",\"Score\":{}}},", score);
  }
  size_t size = out.size();
  for (size_t i = 0; i < args.quoted_names.size(); ++i) {
    size += kBegin.size() + args.quoted_names[i].size() + endings[scores[i]].size();
  }
  const size_t begin = out.size();
  out.resize(size);
  char* at = out.data() + begin;
  const auto put = [&at](std::string_view text) { at = std::copy_n(text.data(), text.size(), at); };
  for (size_t i = 0; i < args.quoted_names.size(); ++i) {
    put(kBegin);
    put(args.quoted_names[i]);
    put(endings[scores[i]]);
  }
  if (out.back() == ',') out.pop_back();
  return out += ']';
}

Result<BindingArgs> ParseBindingArgs(std::string_view body) {
  JsonReader reader(body);
  BindingArgs args;
  std::string_view key;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (KeyIs(key, "PodUID")) {
      args.uid = Uid(reader.String());
      continue;
    }
    std::string* to = KeyIs(key, "PodName")        ? &args.pod
                      : KeyIs(key, "PodNamespace") ? &args.ns
                      : KeyIs(key, "Node")         ? &args.node
                                                   : nullptr;
    to != nullptr ? void(*to = reader.String()) : void(reader.Skip());
  }
  RETURN_IF_ERROR(reader.Finish());
  for (const auto& [missing, name] : {std::pair(args.pod.empty(), "PodName"),
                                      {args.ns.empty(), "PodNamespace"},
                                      {args.uid.empty(), "PodUID"},
                                      {args.node.empty(), "Node"}}) {
    if (missing) return Error(Code::kInvalidArgument, "{} is missing", name);
  }
  return args;
}

std::string SerializeBindingResult(std::string_view error) {
  std::string out = "{\"Error\":";
  AppendJsonString(error, &out);
  return out += '}';
}

Result<PreemptionArgs> ParsePreemptionArgs(std::string_view body) {
  JsonReader reader(body);
  PreemptionArgs args;
  std::string_view key, pod;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (KeyIs(key, "Pod")) {
      pod = reader.Skip();
      // kube-scheduler sends UIDs (MetaVictims) if the extender is nodeCacheCapable, else whole
      // pods.
    } else if (KeyIs(key, "NodeNameToVictims") || KeyIs(key, "NodeNameToMetaVictims")) {
      ReadVictims(reader, &args.victims);
    } else {
      reader.Skip();
    }
  }
  RETURN_IF_ERROR(reader.Finish());
  if (pod.empty()) return Error(Code::kInvalidArgument, "Pod is missing");
  RETURN_IF_ERROR(ReadPod(pod, &args.pod));
  return args;
}

std::string SerializeVictims(const Victims& victims) {
  std::string out = "{\"NodeNameToMetaVictims\":{";
  for (const auto& [node, of_node] : victims) {
    AppendKey(node, &out);
    out += "{\"Pods\":[";
    for (const Uid& uid : of_node.uids) {
      out += "{\"UID\":";
      AppendJsonString(uid.str(), &out);
      out += "},";
    }
    if (out.back() == ',') out.pop_back();
    fmt::format_to(std::back_inserter(out), "],\"NumPDBViolations\":{}}},", of_node.pdb_violations);
  }
  if (out.back() == ',') out.pop_back();
  return out += "}}";
}

}  // namespace tessera::scheduler
