// SPDX-License-Identifier: Apache-2.0
#include "src/replay/csv.h"

#include <algorithm>

#include "src/base/strings.h"

namespace tessera::replay {

std::string Quote(std::string_view text) {
  constexpr size_t kMaxQuotedBytes = 40;
  std::string quoted;
  AppendJsonString(IsValidUtf8(text) ? text.substr(0, kMaxQuotedBytes) : "(no UTF-8)", &quoted);
  if (!IsValidUtf8(quoted)) return "\"...\"";  // cut inside a character
  return quoted;
}

namespace {

bool LooksLikeFraction(std::string_view text) {
  return text.find_first_not_of("0123456789.eE+-") == std::string_view::npos &&
         text.find_first_of(".eE") != std::string_view::npos;
}

bool LooksLikeInteger(std::string_view text) {
  const size_t digits = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return text.size() > digits &&
         text.find_first_not_of("0123456789", digits) == std::string_view::npos;
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Reads one row after another. Rows without quotes, which are almost all, are split without
// copying.
class RowReader {
 public:
  // Stores fields that differ from their text in `unquoted`.
  RowReader(std::string_view text, std::string_view file, std::deque<std::string>* unquoted)
      : rest_(text), file_(file), unquoted_(unquoted) {}

  // The line on which the last row started, from 1; 0 before the first row.
  size_t line() const { return line_; }

  // False at the end.
  Result<bool> Next(std::vector<std::string_view>* fields) {
    while (!rest_.empty()) {
      line_ = next_line_;
      const std::string_view line = rest_.substr(0, rest_.find('\n'));
      if (line.find('"') != std::string_view::npos) {
        RETURN_IF_ERROR(TakeRow(fields));
        return true;
      }
      Skip(line.size());
      EndLine();
      if (Trim(line).empty()) continue;
      *fields = Split(line, ',');
      for (std::string_view& field : *fields) field = Trim(field);
      return true;
    }
    return false;
  }

  Status InvalidField(size_t line, std::string_view problem) const {
    return Error(Code::kInvalidArgument, "{}:{}: {}", file_, line, problem);
  }

 private:
  void Skip(size_t size) { rest_.remove_prefix(size); }
  void SkipBlanks() {
    while (!rest_.empty() && IsBlank(rest_.front())) Skip(1);
  }
  void EndLine() {
    if (!rest_.empty()) Skip(1);
    ++next_line_;
  }

  Status TakeRow(std::vector<std::string_view>* fields) {
    fields->clear();
    while (true) {
      SkipBlanks();
      const size_t number = fields->size() + 1;
      if (rest_.starts_with('"')) {
        RETURN_IF_ERROR(TakeQuoted(number, fields));
      } else {
        RETURN_IF_ERROR(TakePlain(number, fields));
      }
      if (!rest_.starts_with(',')) break;
      Skip(1);
    }
    EndLine();
    return {};
  }

  Status TakePlain(size_t number, std::vector<std::string_view>* fields) {
    const std::string_view field = rest_.substr(0, rest_.find_first_of(",\n"));
    if (field.find('"') != std::string_view::npos) {
      return InvalidField(next_line_,
                          fmt::format("field {}: a quote inside {}: quote the whole field, "
                                      "and double the quotes in it",
                                      number, Quote(Trim(field))));
    }
    fields->push_back(Trim(field));
    Skip(field.size());
    return {};
  }

  // Reads up to the comma or the end of the line. Text between the quotes is kept; a doubled quote
  // is one quote.
  Status TakeQuoted(size_t number, std::vector<std::string_view>* fields) {
    const size_t start_line = next_line_;
    Skip(1);
    std::string joined;
    bool has_doubled_quote = false;
    while (true) {
      const size_t end = rest_.find('"');
      if (end == std::string_view::npos) {
        return InvalidField(start_line, fmt::format("field {}: its quote is not closed", number));
      }
      const std::string_view piece = rest_.substr(0, end);
      next_line_ += static_cast<size_t>(std::count(piece.begin(), piece.end(), '\n'));
      Skip(end + 1);
      const bool more = rest_.starts_with('"');
      if (!more && !has_doubled_quote) {
        fields->push_back(piece);
        break;
      }
      has_doubled_quote = true;
      joined += piece;
      if (!more) {
        fields->push_back(unquoted_->emplace_back(std::move(joined)));
        break;
      }
      joined += '"';
      Skip(1);
    }
    SkipBlanks();
    if (rest_.empty() || rest_.front() == ',' || rest_.front() == '\n') return {};
    return InvalidField(next_line_,
                        fmt::format("field {}: {} after its closing quote", number,
                                    Quote(rest_.substr(0, rest_.find_first_of(",\n")))));
  }

  std::string_view rest_;
  const std::string_view file_;
  std::deque<std::string>* const unquoted_;
  size_t line_ = 0, next_line_ = 1;
};

}  // namespace

Result<Csv> Csv::Parse(std::string_view text, std::string_view file) {
  Csv csv;
  csv.file_ = file;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // written by spreadsheets
  RowReader reader(text, file, &csv.unquoted_);
  std::vector<std::string_view> fields;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next(&fields));
    if (!more) break;
    if (csv.columns_.empty()) {
      csv.columns_ = std::move(fields);
      for (auto entry = csv.columns_.begin(); entry != csv.columns_.end(); ++entry) {
        if (entry->empty()) return reader.InvalidField(reader.line(), "a column has no name");
        if (std::find(csv.columns_.begin(), entry, *entry) != entry) {
          return reader.InvalidField(reader.line(),
                                     fmt::format("duplicate column {}", Quote(*entry)));
        }
      }
      continue;
    }
    if (fields.size() != csv.columns_.size()) {
      return reader.InvalidField(reader.line(),
                                 fmt::format("{} fields where the first line names {} columns",
                                             fields.size(), csv.columns_.size()));
    }
    csv.fields_.insert(csv.fields_.end(), fields.begin(), fields.end());
    csv.lines_.push_back(reader.line());
  }
  if (csv.lines_.empty()) {
    return reader.InvalidField(std::max<size_t>(reader.line(), 1),
                               "no rows below the column names");
  }
  return csv;
}

size_t Csv::Find(std::string_view column) const {
  const auto entry = std::find(columns_.begin(), columns_.end(), column);
  return entry == columns_.end() ? kMissing : static_cast<size_t>(entry - columns_.begin());
}

Result<size_t> Csv::Column(std::string_view column) const {
  const size_t found = Find(column);
  if (found != kMissing) return found;
  std::string existing;
  for (const std::string_view name : columns_) {
    if (existing.size() > 200) break;
    existing += (existing.empty() ? "" : ", ") + Quote(name);
  }
  return Error(Code::kInvalidArgument, "{}:1: column {} is missing; the file has {}", file_, column,
               existing);
}

Result<int64_t> Csv::Number(size_t row, size_t column, int64_t min, int64_t max) const {
  const std::string_view text = Text(row, column);
  if (text.empty()) return InvalidField(row, column, "a number is missing");
  const Result<int64_t> number = ParseInt(text);
  if (!number.ok() && !LooksLikeInteger(text)) {
    return InvalidField(
        row, column,
        fmt::format("{} is {}", Quote(text),
                    LooksLikeFraction(text) ? "not a whole number" : "not a number"));
  }
  const bool negative = number.ok() ? *number < 0 : text.starts_with('-');
  if (negative && min >= 0) {
    return InvalidField(row, column, fmt::format("{} is negative", Quote(text)));
  }
  if (!number.ok() || *number < min || *number > max) {
    return InvalidField(row, column, fmt::format("{} is not in {} … {}", Quote(text), min, max));
  }
  return *number;
}

Status Csv::InvalidField(size_t row, size_t column, std::string_view problem) const {
  return Error(Code::kInvalidArgument, "{}:{}: {}: {}", file_, lines_[row], columns_[column],
               problem);
}

}  // namespace tessera::replay
