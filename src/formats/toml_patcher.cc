// SPDX-License-Identifier: Apache-2.0
#include "src/formats/text_edit.h"

#include <algorithm>
#include <optional>

#include "src/base/strings.h"
#include "src/formats/toml.h"
#include "src/formats/toml_scan.h"

namespace tessera {
namespace {

using toml_scan::HasPrefix;
using toml_scan::ItemList;
using toml_scan::Span;
using toml_scan::Statement;
using toml_scan::StatementKind;

// `plugins."io.containerd.grpc.v1.cri".containerd`, for messages and headers.
std::string TomlKeyText(const KeyPath& path) {
  std::string out;
  for (const std::string& key : path) {
    if (!out.empty()) out += '.';
    const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-';
    });
    if (bare)
      out += key;
    else
      AppendJsonString(key, &out);
  }
  return out;
}

size_t CommonLength(const KeyPath& a, const KeyPath& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

KeyPath Tail(const KeyPath& path, size_t from) { return {path.begin() + from, path.end()}; }
KeyPath Parent(const KeyPath& path) { return {path.begin(), path.end() - 1}; }

Result<std::string> ValueText(const Json& value) {
  std::string out;
  switch (value.kind()) {
    case Json::Kind::kBool:
      return std::string(value.bool_value() ? "true" : "false");
    case Json::Kind::kNumber:
      return value.number_text();
    case Json::Kind::kString:
      AppendJsonString(value.string_value(), &out);
      return out;
    case Json::Kind::kArray:
      for (const Json& item : value.items()) {
        ASSIGN_OR_RETURN(const std::string text, ValueText(item));
        out += (out.empty() ? "" : ", ") + text;
      }
      return "[" + out + "]";
    default:
      return Error(Code::kInvalidArgument, "TOML: {} cannot be set as a value",
                   KindName(value.kind()));
  }
}

// Applies one edit to the text. Each edit scans the text again, because the files are small.
class TomlPatch {
 public:
  explicit TomlPatch(std::string* text) : text_(*text) {
    const size_t newline = text_.find('\n');
    if (newline != std::string::npos && newline > 0 && text_[newline - 1] == '\r') eol_ = "\r\n";
  }

  Status Apply(const TextEdit& edit) {
    ASSIGN_OR_RETURN(statements_, toml_scan::ScanStatements(text_));
    switch (edit.kind) {
      case EditKind::kSet:
        return Set(edit.path, edit.value);
      case EditKind::kRemove:
        return Remove(edit.path);
      case EditKind::kAppend:
        return Append(edit.path, edit.value);
      case EditKind::kRemoveItem:
        return RemoveItem(edit.path, edit.value);
    }
    return Status::Ok();
  }

 private:
  Status Set(const KeyPath& path, const Json& value) {
    ASSIGN_OR_RETURN(const std::string text, ValueText(value));
    ASSIGN_OR_RETURN(const std::optional<Span> span, FindValue(path));
    if (span) return Replace(*span, text);
    if (const Statement* inside = InlineTableAround(path)) {
      return SetInInlineTable(inside->value.begin, Tail(path, inside->path.size()), text);
    }
    return Insert(path, text);
  }

  // The span of the value at `path`, in its own statement or in an inline table.
  Result<std::optional<Span>> FindValue(const KeyPath& path) const {
    for (const Statement& s : statements_) {
      if (s.kind == StatementKind::kKeyValue && s.path == path && !s.below_array_of_tables)
        return {s.value};
    }
    const Statement* inside = InlineTableAround(path);
    if (inside == nullptr) return std::optional<Span>();
    return FindInInlineTable(inside->value.begin, Tail(path, inside->path.size()));
  }

  Result<std::optional<Span>> FindInInlineTable(size_t at, const KeyPath& rest) const {
    if (text_[at] != '{') return NotATable(rest);
    ASSIGN_OR_RETURN(const ItemList members, toml_scan::ScanItems(text_, at));
    for (const toml_scan::Item& member : members.items) {
      if (member.path == rest) return {member.value};
      if (HasPrefix(rest, member.path)) {
        return FindInInlineTable(member.value.begin, Tail(rest, member.path.size()));
      }
    }
    return std::optional<Span>();
  }

  const Statement* InlineTableAround(const KeyPath& path) const {
    for (const Statement& s : statements_) {
      if (s.kind == StatementKind::kKeyValue && !s.below_array_of_tables &&
          s.path.size() < path.size() && HasPrefix(path, s.path)) {
        return &s;
      }
    }
    return nullptr;
  }

  Status SetInInlineTable(size_t at, const KeyPath& rest, const std::string& value) {
    if (text_[at] != '{') return NotATable(rest);
    ASSIGN_OR_RETURN(const ItemList members, toml_scan::ScanItems(text_, at));
    for (const toml_scan::Item& member : members.items) {
      if (HasPrefix(rest, member.path)) {
        return SetInInlineTable(member.value.begin, Tail(rest, member.path.size()), value);
      }
    }
    const std::string entry = TomlKeyText(rest) + " = " + value;
    if (members.items.empty()) return Replace({at, members.close + 1}, "{ " + entry + " }");
    text_.insert(members.items.back().whole.end, ", " + entry);
    return Status::Ok();
  }

  // Adds a missing key to the section to which it belongs, or to a new section.
  Status Insert(const KeyPath& path, const std::string& value) {
    size_t best_rank = 0;
    const Statement* after = nullptr;
    KeyPath table;
    size_t table_depth = 0;  // of the table that `after` belongs to
    for (const Statement& s : statements_) {
      if (s.kind != StatementKind::kKeyValue) table = s.path;
      if (s.below_array_of_tables || !HasPrefix(path, table)) continue;
      // A table of dotted keys may only be extended by dotted keys, beside the existing keys.
      const bool dotted =
          s.kind == StatementKind::kKeyValue && CommonLength(s.path, path) > table.size();
      const bool own_section = table.size() + 1 == path.size();
      if (!dotted && !own_section) continue;
      // Prefers the deepest table, and in it the neighbor with the longest common key.
      const size_t rank = table.size() + 1 + (dotted ? CommonLength(s.path, path) : 0);
      if (rank >= best_rank) {
        best_rank = rank;
        after = &s;
        table_depth = table.size();
      }
    }
    if (after != nullptr) return InsertAfter(*after, Tail(path, table_depth), value);
    return path.size() == 1 ? InsertAtTop(path, value) : InsertSection(path, value);
  }

  Status InsertAfter(const Statement& after, const KeyPath& key, const std::string& value) {
    std::string indent = IndentOf(after);
    if (after.kind != StatementKind::kKeyValue) indent += ChildIndent(after);
    InsertLines(after.lines.end, fmt::format("{}{} = {}{}", indent, TomlKeyText(key), value, eol_));
    return Status::Ok();
  }

  // Inserts above the first header and the comment attached to it.
  Status InsertAtTop(const KeyPath& path, const std::string& value) {
    std::string line = fmt::format("{} = {}{}", TomlKeyText(path), value, eol_);
    const size_t start = text_.starts_with("\xEF\xBB\xBF") ? 3 : 0;
    if (statements_.empty()) {
      InsertLines(text_.size(), line);
      return Status::Ok();
    }
    size_t at = statements_.front().lines.begin;
    while (at > start) {
      const size_t previous = at >= 2 ? text_.rfind('\n', at - 2) + 1 : 0;
      if (text_.find_first_not_of(" \t", std::max(previous, start)) == std::string::npos) break;
      if (text_[text_.find_first_not_of(" \t", std::max(previous, start))] != '#') break;
      at = std::max(previous, start);
    }
    InsertLines(at, line.append(eol_));
    return Status::Ok();
  }

  // Inserts a section for the parent table of `path`, after the last section below the same table,
  // or at the end.
  Status InsertSection(const KeyPath& path, const std::string& value) {
    const KeyPath table = Parent(path);
    const KeyPath grandparent = Parent(table);
    size_t at = text_.size();
    std::string indent;
    std::string child_indent;
    size_t closest = 0;
    const Statement* header = nullptr;
    for (const Statement& s : statements_) {
      if (s.kind != StatementKind::kKeyValue) header = &s;
      if (header == nullptr || header->below_array_of_tables) continue;
      const size_t common = CommonLength(header->path, table);
      if (common == 0 || common < closest) continue;
      closest = common;
      if (!grandparent.empty() && HasPrefix(header->path, grandparent)) at = s.lines.end;
      if (header->path.size() == table.size()) {
        indent = IndentOf(*header);
        if (s.kind == StatementKind::kKeyValue && IndentOf(s).starts_with(indent)) {
          child_indent = IndentOf(s).substr(indent.size());
        }
      } else if (header->path.size() < table.size()) {
        indent = IndentOf(*header) + (IndentOf(*header).empty() ? "" : "  ");
        child_indent = IndentOf(*header).empty() ? "" : "  ";
      }
    }
    const bool first = Trim(std::string_view(text_).substr(0, at)).empty();
    InsertLines(
        at, fmt::format("{0}{1}[{2}]{3}{1}{4}{5} = {6}{3}", first ? "" : eol_, indent,
                        TomlKeyText(table), eol_, child_indent, TomlKeyText({path.back()}), value));
    return Status::Ok();
  }

  Status Append(const KeyPath& path, const Json& value) {
    ASSIGN_OR_RETURN(const std::optional<Span> span, FindValue(path));
    if (!span) return Set(path, Json::MakeArray({value}));
    if (text_[span->begin] != '[') return NotAnArray(path);
    ASSIGN_OR_RETURN(const std::string text, ValueText(value));
    ASSIGN_OR_RETURN(const ItemList array, toml_scan::ScanItems(text_, span->begin));
    for (const toml_scan::Item& item : array.items) {
      if (ItemEquals(item.value, value)) return Status::Ok();
    }
    if (array.items.empty()) return Replace({span->begin + 1, span->begin + 1}, text);
    const size_t last = array.items.back().whole.begin;
    const size_t line = text_.rfind('\n', last);
    std::string gap = " ";
    if (line != std::string::npos && line > span->begin &&
        text_.find_first_not_of(" \t", line + 1) == last) {
      gap.assign(eol_).append(text_, line + 1, last - line - 1);  // one item per line
    }
    if (array.trailing_comma) {
      text_.insert(array.after_comma, gap + text + ",");
    } else {
      text_.insert(array.items.back().whole.end, "," + gap + text);
    }
    return Status::Ok();
  }

  Status RemoveItem(const KeyPath& path, const Json& value) {
    ASSIGN_OR_RETURN(const std::optional<Span> span, FindValue(path));
    if (!span) return Status::Ok();
    if (text_[span->begin] != '[') return NotAnArray(path);
    ASSIGN_OR_RETURN(const ItemList array, toml_scan::ScanItems(text_, span->begin));
    for (size_t i = array.items.size(); i-- > 0;) {
      if (ItemEquals(array.items[i].value, value)) {
        EraseItem(array, i);
        return RemoveItem(path, value);
      }
    }
    return Status::Ok();
  }

  // Removes the item and the comma before it, or after the first item. A comment between the comma
  // and the item stays.
  void EraseItem(const ItemList& list, size_t index) {
    Span span = list.items[index].whole;
    if (index > 0) {
      const size_t comma = CommaAfter(list.items[index - 1].whole.end);
      const std::string_view between =
          std::string_view(text_).substr(comma + 1, span.begin - comma - 1);
      if (Trim(between).empty()) {
        span.begin = comma;
      } else {
        text_.erase(span.begin, span.end - span.begin);
        text_.erase(comma, 1);
        return;
      }
    } else if (list.items.size() > 1 || list.trailing_comma) {
      span.end = CommaAfter(span.end) + 1;
      while (span.end < text_.size() && (text_[span.end] == ' ' || text_[span.end] == '\t')) {
        ++span.end;
      }
    }
    text_.erase(span.begin, span.end - span.begin);
  }

  // Scans for the comma, because comments before it may contain commas.
  size_t CommaAfter(size_t at) const {
    while (at < text_.size() && text_[at] != ',') {
      at = text_[at] == '#' ? std::min(text_.find('\n', at), text_.size()) : at + 1;
    }
    return at;
  }

  bool ItemEquals(Span span, const Json& value) const {
    const auto parsed = ParseToml(
        fmt::format("k = {}", std::string_view(text_).substr(span.begin, span.end - span.begin)));
    return parsed.ok() && parsed->Find("k") != nullptr && *parsed->Find("k") == value;
  }

  Status Remove(const KeyPath& path) {
    for (size_t i = statements_.size(); i-- > 0;) {
      const Statement& s = statements_[i];
      if (!HasPrefix(s.path, path)) continue;
      size_t begin = s.lines.begin;
      if (s.kind != StatementKind::kKeyValue) begin -= BlankLineBefore(begin);
      text_.erase(begin, s.lines.end - begin);
    }
    const Statement* inside = InlineTableAround(path);
    if (inside == nullptr) return Status::Ok();
    return RemoveMember(inside->value.begin, Tail(path, inside->path.size()));
  }

  Status RemoveMember(size_t at, const KeyPath& rest) {
    if (text_[at] != '{') return NotATable(rest);
    ASSIGN_OR_RETURN(const ItemList members, toml_scan::ScanItems(text_, at));
    for (size_t i = members.items.size(); i-- > 0;) {
      const toml_scan::Item& member = members.items[i];
      if (HasPrefix(member.path, rest)) {
        EraseItem(members, i);
        return RemoveMember(at, rest);
      }
      if (HasPrefix(rest, member.path)) {
        return RemoveMember(member.value.begin, Tail(rest, member.path.size()));
      }
    }
    return Status::Ok();
  }

  size_t BlankLineBefore(size_t at) const {
    const std::string_view before = std::string_view(text_).substr(0, at);
    if (!before.ends_with(fmt::format("\n{}", eol_))) return 0;
    return eol_.size();
  }

  std::string IndentOf(const Statement& s) const {
    return text_.substr(s.lines.begin, s.content - s.lines.begin);
  }
  // The indentation of keys relative to their header, taken from another section.
  std::string ChildIndent(const Statement& header) const {
    const Statement* last = nullptr;
    for (const Statement& s : statements_) {
      if (s.kind != StatementKind::kKeyValue) {
        last = &s;
      } else if (last != nullptr && last != &header) {
        const std::string outer = IndentOf(*last);
        const std::string inner = IndentOf(s);
        return inner.starts_with(outer) ? inner.substr(outer.size()) : "";
      }
    }
    return "";
  }

  void InsertLines(size_t at, const std::string& lines) {
    const bool needs_line_end = at > 0 && text_[at - 1] != '\n' && !text_.ends_with("\xEF\xBB\xBF");
    text_.insert(at, fmt::format("{}{}", needs_line_end ? eol_ : "", lines));
  }

  Status Replace(Span span, const std::string& with) {
    text_.replace(span.begin, span.end - span.begin, with);
    return Status::Ok();
  }

  static Status NotATable(const KeyPath& path) {
    return Error(Code::kInvalidArgument, "TOML: the parent of {} is not a table",
                 TomlKeyText(path));
  }
  static Status NotAnArray(const KeyPath& path) {
    return Error(Code::kInvalidArgument, "TOML: {} is not an array", TomlKeyText(path));
  }

  std::string& text_;
  std::string_view eol_ = "\n";
  std::vector<Statement> statements_;
};

// Sorts keys, so that equality does not depend on where a key was added. `drop_empty` drops empty
// tables: after the removal of a header, its parents may no longer exist, because only this header
// implied them.
Json Canonical(const Json& json, bool drop_empty) {
  if (!json.is_object()) return json;
  Json out = Json::MakeObject();
  for (const auto& [key, value] : json.members()) {
    Json inner = Canonical(value, drop_empty);
    if (drop_empty && inner.is_object() && inner.members().empty()) continue;
    out.members().emplace_back(key, std::move(inner));
  }
  std::sort(out.members().begin(), out.members().end(),
            [](const Json::Member& a, const Json::Member& b) { return a.first < b.first; });
  return out;
}

}  // namespace

Result<std::string> PatchToml(std::string_view text, const std::vector<TextEdit>& edits) {
  ASSIGN_OR_RETURN(Json expected, ParseToml(text));
  std::string patched(text);
  bool removes = false;
  for (const TextEdit& edit : edits) {
    Json after = expected;
    RETURN_IF_ERROR(ApplyEdit(edit, &after));
    if (after == expected) continue;
    expected = std::move(after);
    removes |= edit.kind == EditKind::kRemove;
    RETURN_IF_ERROR(TomlPatch(&patched).Apply(edit));
  }
  const auto reparsed = ParseToml(patched);
  if (!reparsed.ok() || !(Canonical(*reparsed, removes) == Canonical(expected, removes))) {
    return Error(Code::kInternal,
                 "TOML: the edits would change other content, too: edit the file by hand{}{}",
                 reparsed.ok() ? "" : ": ", reparsed.status().message());
  }
  return patched;
}

}  // namespace tessera
