// SPDX-License-Identifier: Apache-2.0
// Shows a migration on one screen.
#include <algorithm>

#include "src/cli/migrate/migration.h"
#include "src/cli/output/table.h"

namespace tessera::cli {
namespace {

constexpr size_t kMaxRows = 20;

// Adds a table with the first rows, and a line with the number of further rows.
template <typename Rows, typename CellsOf>
void AddTable(std::vector<std::string> columns, const Rows& rows, bool wide, CellsOf cells_of,
              TextOutput* output) {
  if (rows.empty()) return;
  TextTable table{std::move(columns)};
  const size_t shown = wide ? rows.size() : std::min(rows.size(), kMaxRows);
  for (size_t i = 0; i < shown; ++i) table.rows.push_back(cells_of(rows[i]));
  output->AddTable(table);
  if (shown < rows.size()) {
    output->AddLine(fmt::format("and {} more: -o wide shows all", rows.size() - shown));
  }
  output->AddEmptyLine();
}

std::vector<Cell> UnmappedRow(const std::string& unmapped) {
  const size_t colon = unmapped.find(": ");
  return {unmapped.substr(0, colon), unmapped.substr(colon + 2)};
}

void AddSteps(const Migration& migration, TextOutput* output) {
  if (!migration.obstacles.empty()) output->AddLine("BEFORE", Tone::kHead);
  for (const std::string& obstacle : migration.obstacles) output->AddLine("- " + obstacle);
  if (!migration.obstacles.empty()) output->AddEmptyLine();
  output->AddLine("STEPS", Tone::kHead);
  for (size_t i = 0; i < migration.steps.size(); ++i) {
    output->AddLine(fmt::format("{}. {}", i + 1, migration.steps[i]));
  }
}

}  // namespace

Result<std::string> ShowMigration(const Migration& migration, const Style& style) {
  TextOutput output(style.color);
  const bool wide = style.wide();
  AddTable(
      {"FROM", "SYSTEM", "NODES"}, migration.sources, wide,
      [](const MigrationSource& source) -> std::vector<Cell> {
        return {source.object, source.system, std::to_string(source.nodes)};
      },
      &output);
  AddTable(
      {"SETTING", "VALUE", "FROM"}, migration.mapped_settings, true,
      [](const components::MappedSetting& mapped) -> std::vector<Cell> {
        return {mapped.setting,
                mapped.value.is_string() ? mapped.value.string_value() : mapped.value.Serialize(),
                mapped.field};
      },
      &output);
  AddTable({"WITHOUT EQUIVALENT", "WHY"}, migration.unmapped_settings, true, UnmappedRow, &output);
  AddTable(
      {"NODE", "GPUS", "NOW BY", "PODS", "THEN"}, migration.nodes, wide,
      [](const MigrationNode& node) -> std::vector<Cell> {
        return {node.name, node.gpus.empty() ? "-" : node.gpus,
                node.system.empty() ? "-" : node.system, std::to_string(node.pods), node.outcome};
      },
      &output);
  AddTable(
      {"POD", "NODE", "REQUEST", "THEN"}, migration.pods, wide,
      [](const MigrationPod& pod) -> std::vector<Cell> {
        return {pod.name, pod.node, pod.request, pod.outcome};
      },
      &output);
  AddSteps(migration, &output);
  return PrintDocument(migration.resource, output.Take(), style);
}

}  // namespace tessera::cli
