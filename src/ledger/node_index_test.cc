// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/node_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "src/base/random.h"
#include "src/ledger/ledger.h"

namespace tessera::ledger {
namespace {

// Compares the index with a std::map over random insertions and removals.
TEST(NodeIndexTest, FindsPresentNamesOnly) {
  Random random(7);
  NodeIndex index;
  std::map<std::string, NodeEntry> nodes;
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back(fmt::format("node-{}", i));
  std::vector<std::string_view> views(names.begin(), names.end());
  for (int step = 0; step < 4000; ++step) {
    const std::string& name = names[random.Below(names.size())];
    const auto [at, added] = nodes.try_emplace(name);
    if (added) {
      index.Insert(at->first, &at->second);
    } else if (random.Below(2) == 0) {
      index.Erase(name);
      nodes.erase(at);
    }
    if (step % 100 != 0) continue;
    std::vector<const NodeEntry*> found(views.size());
    index.Find(views, found);
    for (size_t i = 0; i < names.size(); ++i) {
      const auto expected = nodes.find(names[i]);
      ASSERT_EQ(found[i], expected == nodes.end() ? nullptr : &expected->second) << names[i];
      ASSERT_EQ(index.Find(names[i]), found[i]);
    }
  }
  index.Erase("unknown");
  EXPECT_EQ(index.Find(""), nullptr);
}

}  // namespace
}  // namespace tessera::ledger
