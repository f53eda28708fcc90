// SPDX-License-Identifier: Apache-2.0
// Compares our own code with the library that could replace it, on the requests that kube-scheduler
// sends for 5,000 nodes:
//
//   JsonReader (src/formats/json_reader.h)  beside simdjson On-Demand, if its header is installed
//   NodeIndex (src/ledger/node_index.h)     beside boost::unordered_flat_map
//
// Prints microseconds a request, the median of the rounds. The two sides take turns. Before each
// lookup the program fills the processor's caches with other memory, as happens between two
// requests.
//   library_bench [rounds, 101]
#include <fmt/format.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#ifdef TESSERA_HAS_SIMDJSON
#include <simdjson.h>
#endif

#include "src/formats/json_reader.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/node_index.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kNodes = 5000;
constexpr size_t kCacheBytes = 64 << 20;

using Names = std::vector<std::string_view>;
struct Side {
  std::string name;
  std::function<size_t()> run;  // equal results show that both sides did the same work
};

// The median of each side.
void Compare(const std::string& title, const std::vector<Side>& sides, int rounds, bool cold) {
  std::vector<std::vector<double>> micros(sides.size());
  std::vector<char> other_memory(cold ? kCacheBytes : 0);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      std::ranges::fill(other_memory, static_cast<char>(round));
      const auto start = Clock::now();
      const size_t result = sides[i].run();
      micros[i].push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      if (result != kNodes) {
        fmt::print(stderr, "{}: {} of {} nodes\n", sides[i].name, result, kNodes);
        std::exit(1);
      }
    }
  }
  fmt::print("{}\n", title);
  for (size_t i = 0; i < sides.size(); ++i) {
    std::ranges::sort(micros[i]);
    fmt::print("  {:<28} {:>10.1f}\n", sides[i].name, micros[i][micros[i].size() / 2]);
  }
}

std::string NameOf(size_t node) { return fmt::format("gpu-pool-a100-{:05}.cluster.local", node); }

std::string PodText() {
  Random random(1);
  return kube::testing::JsonOf(kube::testing::SamplePod(random, 1));
}

std::string NamesRequest() {
  std::string text = "{\"Pod\":" + PodText() + ",\"Nodes\":null,\"NodeNames\":[";
  for (size_t i = 0; i < kNodes; ++i) text += fmt::format("{}\"{}\"", i == 0 ? "" : ",", NameOf(i));
  return text + "]}";
}

// A request with whole Nodes, as an extender gets it that keeps no copy of the nodes.
std::string NodesRequest() {
  Random random(2);
  std::string text = "{\"Pod\":" + PodText() + ",\"Nodes\":{\"metadata\":{},\"items\":[";
  for (size_t i = 0; i < kNodes; ++i) {
    if (i > 0) text += ',';
    text += kube::testing::JsonOf(kube::testing::SampleNode(random, static_cast<int>(i)));
  }
  return text + "]},\"NodeNames\":null}";
}

size_t NamesOfReader(std::string_view text) {
  JsonReader reader(text);
  std::string_view key;
  Names names, quoted;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (key == "NodeNames" && reader.BeginArray()) {
      reader.Strings(2 * kNodes, &names, &quoted);
    } else {
      reader.Skip();
    }
  }
  return reader.Finish().ok() ? names.size() : 0;
}

std::string_view NameOfNode(std::string_view node) {
  JsonReader reader(node);
  std::string_view key;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (key != "metadata") {
      reader.Skip();
      continue;
    }
    for (reader.BeginObject(); reader.NextMember(&key);) {
      if (key == "name") return reader.String();
      reader.Skip();
    }
  }
  return {};
}

size_t NodesOfReader(std::string_view text) {
  JsonReader reader(text);
  std::string_view key;
  Names names;
  std::vector<std::string_view> nodes;
  for (reader.BeginObject(); reader.NextMember(&key);) {
    if (key != "Nodes") {
      reader.Skip();
      continue;
    }
    for (reader.BeginObject(); reader.NextMember(&key);) {
      if (key != "items") {
        reader.Skip();
        continue;
      }
      for (reader.BeginArray(); reader.NextItem();) nodes.push_back(reader.Skip());
    }
  }
  for (const std::string_view node : nodes) names.push_back(NameOfNode(node));
  return reader.Finish().ok() ? names.size() : 0;
}

#ifdef TESSERA_HAS_SIMDJSON
size_t NamesOfSimdjson(simdjson::ondemand::parser& parser, const simdjson::padded_string& text) {
  auto document = parser.iterate(text);
  Names names, quoted;
  for (auto member : document.get_object()) {
    if (member.unescaped_key().value() != "NodeNames") continue;
    for (auto item : member.value().get_array()) {
      quoted.push_back(item.raw_json_token());
      names.push_back(item.get_string());
    }
  }
  return names.size();
}

size_t NodesOfSimdjson(simdjson::ondemand::parser& parser, const simdjson::padded_string& text) {
  auto document = parser.iterate(text);
  Names names;
  std::vector<std::string_view> nodes;
  for (auto member : document.get_object()) {
    if (member.unescaped_key().value() != "Nodes") continue;
    for (auto item : member.value().find_field_unordered("items").get_array()) {
      simdjson::ondemand::object node = item.get_object();
      nodes.push_back(node.raw_json());
      node.reset();
      names.push_back(node["metadata"]["name"].get_string());
    }
  }
  return names.size();
}
#endif

void CompareJson(int rounds) {
  const std::string names = NamesRequest(), nodes = NodesRequest();
  std::vector<Side> of_names = {{"JsonReader", [&] { return NamesOfReader(names); }}};
  std::vector<Side> of_nodes = {{"JsonReader", [&] { return NodesOfReader(nodes); }}};
#ifdef TESSERA_HAS_SIMDJSON
  simdjson::ondemand::parser parser;
  const simdjson::padded_string padded_names(names), padded_nodes(nodes);
  of_names.push_back({"simdjson", [&] { return NamesOfSimdjson(parser, padded_names); }});
  of_nodes.push_back({"simdjson", [&] { return NodesOfSimdjson(parser, padded_nodes); }});
#endif
  Compare("names of 5,000 nodes", of_names, rounds, false);
  Compare("5,000 whole nodes", of_nodes, rounds, false);
}

void CompareIndex(int rounds) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kNodes; ++i) names.push_back(NameOf(i));
  // Entries are allocated apart from each other, with other memory between them.
  std::vector<std::vector<char>> entries(kNodes, std::vector<char>(512, 'x'));
  const auto entry = [&](size_t i) {
    return reinterpret_cast<const ledger::NodeEntry*>(entries[i].data());
  };
  ledger::NodeIndex index;
  boost::unordered_flat_map<std::string_view, const ledger::NodeEntry*> map;
  for (size_t i = 0; i < kNodes; ++i) {
    index.Insert(names[i], entry(i));
    map.emplace(names[i], entry(i));
  }
  const std::string request = NamesRequest();
  Names asked, quoted;
  JsonReader reader(std::string_view(request).substr(request.rfind('[')));
  reader.BeginArray();
  reader.Strings(2 * kNodes, &asked, &quoted);
  std::vector<const ledger::NodeEntry*> found(kNodes);
  // A filter reads of each entry whether the node fits.
  const auto fit = [&] {
    return static_cast<size_t>(std::ranges::count_if(found, [](const ledger::NodeEntry* of_node) {
      return of_node != nullptr && *reinterpret_cast<const char*>(of_node) == 'x';
    }));
  };
  const std::vector<Side> sides = {{"NodeIndex",
                                    [&] {
                                      index.Find(asked, found);
                                      return fit();
                                    }},
                                   {"boost::unordered_flat_map", [&] {
                                      for (size_t i = 0; i < asked.size(); ++i) {
                                        const auto at = map.find(asked[i]);
                                        found[i] = at == map.end() ? nullptr : at->second;
                                      }
                                      return fit();
                                    }}};
  Compare("look-up of 5,000 names, caches cold", sides, rounds, true);
  Compare("look-up of 5,000 names, caches warm", sides, rounds, false);
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 101;
  if (rounds < 1) {
    fmt::print(stderr, "usage: library_bench [rounds, at least 1]\n");
    return 64;
  }
  fmt::print("microseconds a request, median of {}\n", rounds);
  CompareJson(rounds);
  CompareIndex(rounds);
#ifndef TESSERA_HAS_SIMDJSON
  fmt::print("simdjson is not installed: apt-get install libsimdjson-dev, and build again\n");
#endif
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
