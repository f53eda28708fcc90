// SPDX-License-Identifier: Apache-2.0
#include "src/formats/toml_scan.h"

#include "src/formats/toml.h"

namespace tessera::toml_scan {
namespace {

constexpr int kMaxDepth = 200;

class Scanner {
 public:
  Scanner(std::string_view text, size_t at) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  bool AtEnd() const { return at_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }
  bool Take(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool StartsWith(std::string_view prefix) const { return text_.substr(at_).starts_with(prefix); }

  void SkipBlanks() {
    while (Peek() == ' ' || Peek() == '\t') ++at_;
  }
  void SkipToLineEnd() {
    while (!AtEnd() && text_[at_] != '\n') ++at_;
    Take('\n');
  }
  // Skips blanks, line ends and comments between the items of an array.
  void SkipSpace() {
    for (;;) {
      const char c = Peek();
      if (c == '#') {
        SkipToLineEnd();
      } else if (!AtEnd() && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  Status SkipString() {
    const char quote = Peek();
    const std::string triple(3, quote);
    const bool multi_line = StartsWith(triple);
    at_ += multi_line ? 3 : 1;
    while (!AtEnd()) {
      if (quote == '"' && text_[at_] == '\\') {
        at_ += 2;
      } else if (multi_line ? StartsWith(triple) : text_[at_] == quote) {
        at_ += multi_line ? 3 : 1;
        // Up to two quotes may precede the closing three.
        while (multi_line && Take(quote)) {
        }
        return Status::Ok();
      } else {
        ++at_;
      }
    }
    return UnexpectedText("a string that does not end");
  }

  Status SkipValue(int depth = 0) {
    if (depth > kMaxDepth) return UnexpectedText("a value nested too deeply");
    const char c = Peek();
    if (c == '"' || c == '\'') return SkipString();
    if (c == '[' || c == '{') return ReadItems(depth, nullptr);
    const size_t begin = at_;
    while (!AtEnd() && std::string_view(",]}#\r\n").find(text_[at_]) == std::string_view::npos) {
      ++at_;
    }
    while (at_ > begin && (text_[at_ - 1] == ' ' || text_[at_ - 1] == '\t')) --at_;
    return at_ > begin ? Status::Ok() : UnexpectedText("a missing value");
  }

  // Reads an array or an inline table, including its brackets.
  Status ReadItems(int depth, ItemList* items) {
    const bool table = Peek() == '{';
    const char close = table ? '}' : ']';
    ++at_;
    bool comma = false;
    for (;;) {
      SkipSpace();
      if (Peek() == close) break;
      Item item;
      item.whole.begin = at_;
      if (table) RETURN_IF_ERROR(ReadKeyAndEquals(&item.path));
      item.value.begin = at_;
      RETURN_IF_ERROR(SkipValue(depth + 1));
      item.value.end = item.whole.end = at_;
      if (items != nullptr) items->items.push_back(std::move(item));
      SkipSpace();
      comma = Take(',');
      if (items != nullptr) items->after_comma = at_;
      if (!comma && Peek() != close) return UnexpectedText("an item without a comma");
    }
    if (items != nullptr) {
      items->trailing_comma = comma;
      items->close = at_;
    }
    ++at_;
    return Status::Ok();
  }

  Status ReadKeyAndEquals(KeyPath* path) {
    RETURN_IF_ERROR(ReadKey(path));
    SkipBlanks();
    if (!Take('=')) return UnexpectedText("a key without \"=\"");
    SkipBlanks();
    return Status::Ok();
  }

  Status ReadKey(KeyPath* path) {
    do {
      SkipBlanks();
      const size_t begin = at_;
      if (Peek() == '"' || Peek() == '\'') {
        RETURN_IF_ERROR(SkipString());
        // The library decodes the escapes.
        const std::string_view quoted = text_.substr(begin, at_ - begin);
        ASSIGN_OR_RETURN(const Json document, ParseToml(fmt::format("k = {}", quoted)));
        ASSIGN_OR_RETURN(std::string key, document.StringAt("k"));
        path->push_back(std::move(key));
      } else {
        while (!AtEnd() &&
               std::string_view(" \t.=]\r\n#").find(text_[at_]) == std::string_view::npos) {
          ++at_;
        }
        if (at_ == begin) return UnexpectedText("a missing key");
        path->emplace_back(text_.substr(begin, at_ - begin));
      }
      SkipBlanks();
    } while (Take('.'));
    return Status::Ok();
  }

  Status UnexpectedText(std::string_view why) const {
    return Error(Code::kInternal, "TOML: unexpected text at offset {}: {}", at_, why);
  }

 private:
  const std::string_view text_;
  size_t at_;
};

// Reads the header "[table]" or "[[array]]" at which the scanner stands.
Status ReadHeader(Scanner* scanner, Statement* statement) {
  scanner->Take('[');
  if (scanner->Take('['))
    statement->kind = StatementKind::kArrayOfTables;
  else
    statement->kind = StatementKind::kTable;
  RETURN_IF_ERROR(scanner->ReadKey(&statement->path));
  return scanner->Take(']') ? Status::Ok() : scanner->UnexpectedText("a header without \"]\"");
}

bool IsBelowAny(const KeyPath& path, const std::vector<KeyPath>& arrays) {
  for (const KeyPath& array : arrays) {
    if (HasPrefix(path, array)) return true;
  }
  return false;
}

}  // namespace

bool HasPrefix(const KeyPath& path, const KeyPath& prefix) {
  return path.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
}

Result<std::vector<Statement>> ScanStatements(std::string_view text) {
  std::vector<Statement> statements;
  std::vector<KeyPath> arrays;
  KeyPath table;
  bool below_array = false;
  Scanner scanner(text, text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  while (!scanner.AtEnd()) {
    Statement statement;
    statement.lines.begin = scanner.at();
    scanner.SkipBlanks();
    statement.content = scanner.at();
    const char c = scanner.Peek();
    if (scanner.AtEnd() || c == '#' || c == '\r' || c == '\n') {
      scanner.SkipToLineEnd();
      continue;
    }
    if (c == '[') {
      RETURN_IF_ERROR(ReadHeader(&scanner, &statement));
      if (statement.kind == StatementKind::kArrayOfTables) arrays.push_back(statement.path);
      table = statement.path;
      below_array = IsBelowAny(table, arrays);
    } else {
      RETURN_IF_ERROR(scanner.ReadKeyAndEquals(&statement.path));
      statement.path.insert(statement.path.begin(), table.begin(), table.end());
      statement.value.begin = scanner.at();
      RETURN_IF_ERROR(scanner.SkipValue());
      statement.value.end = scanner.at();
    }
    statement.below_array_of_tables = below_array;
    scanner.SkipToLineEnd();
    statement.lines.end = scanner.at();
    statements.push_back(std::move(statement));
  }
  return statements;
}

Result<ItemList> ScanItems(std::string_view text, size_t at) {
  ItemList items;
  Scanner scanner(text, at);
  if (scanner.Peek() != '[' && scanner.Peek() != '{') return scanner.UnexpectedText("no bracket");
  RETURN_IF_ERROR(scanner.ReadItems(0, &items));
  return items;
}

}  // namespace tessera::toml_scan
