// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <iterator>

#include "src/base/strings.h"
#include "src/cli/output/jsonpath_steps.h"

namespace tessera::cli {
namespace {

using Block = JsonPath::Block;

// Far beyond any list, and small enough to be added to a length without overflow.
constexpr int64_t kMaxIndex = int64_t{1} << 40;

bool EndsName(char c) { return std::string_view(" \t\r\n.,[]$@{}").find(c) != std::string::npos; }
bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string WithoutBackslashes(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c != '\\') plain += c;
  }
  return plain;
}

// Reads the escapes of a quoted text: \n, \t, \r, \\, and the quote itself.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      plain += text[i];
      continue;
    }
    const char c = text[++i];
    plain += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return plain;
}

// Parses the text between the braces of one expression.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Result<PathSteps> Parse() {
    while (at_ < text_.size()) RETURN_IF_ERROR(ParseStep());
    return std::move(steps_);
  }

 private:
  template <typename Step>
  void Add(Step step) {
    steps_.push_back({std::move(step)});
  }
  bool TakeIf(std::string_view prefix) {
    if (!text_.substr(at_).starts_with(prefix)) return false;
    at_ += prefix.size();
    return true;
  }

  Status ParseStep() {
    if (TakeIf("[?(")) return ParseFilter();
    if (TakeIf("..")) return ParseRecursive();
    const char c = text_[at_];
    if (c == ' ' || c == '@' || c == '$') {
      ++at_;
      return Status::Ok();
    }
    if (TakeIf("[")) return ParseBrackets();
    if (c == '"' || c == '\'') return ParseQuoted(c);
    if (TakeIf(".")) return ParseField();
    if (c == '+' || c == '-' || std::isdigit(static_cast<unsigned char>(c)) != 0) {
      return ParseNumber();
    }
    if (IsWordChar(c)) return ParseWord();
    return Error(Code::kInvalidArgument, "unexpected \"{}\" at column {}", c, at_ + 1);
  }

  Status ParseRecursive() {
    if (!steps_.empty() && std::holds_alternative<RecursiveStep>(steps_.back().step)) {
      return Error(Code::kInvalidArgument, "\"..\" twice");
    }
    Add(RecursiveStep{});
    if (at_ < text_.size() && (IsWordChar(text_[at_]) || text_[at_] == '*')) return ParseField();
    return Status::Ok();
  }

  Status ParseField() {
    const size_t begin = at_;
    while (at_ < text_.size() && !EndsName(text_[at_])) at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "*") {
      Add(WildcardStep{});
    } else {
      Add(FieldStep{WithoutBackslashes(name)});
    }
    return Status::Ok();
  }

  Status ParseQuoted(char quote) {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return Error(Code::kInvalidArgument, "a quoted text does not end");
    Add(LiteralStep{Json::String(Unescape(text_.substr(begin, at_ - begin)))});
    ++at_;
    return Status::Ok();
  }

  Status ParseNumber() {
    const size_t begin = at_;
    if (text_[at_] == '+' || text_[at_] == '-') ++at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.')) {
      ++at_;
    }
    std::string_view number = text_.substr(begin, at_ - begin);
    if (number.starts_with('+')) number.remove_prefix(1);
    const Result<Json> value = ParseJson(number);
    if (!value.ok()) return Error(Code::kInvalidArgument, "invalid number {}", number);
    Add(LiteralStep{*value});
    return Status::Ok();
  }

  Status ParseWord() {
    const size_t begin = at_;
    while (at_ < text_.size() && !EndsName(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "true" || word == "false") {
      Add(LiteralStep{Json::Bool(word == "true")});
      return Status::Ok();
    }
    return Error(Code::kInvalidArgument, "unrecognized identifier {}: a field begins with \".\"",
                 word);
  }

  // Takes the text up to the closing bracket. Ignores brackets in quotes.
  Result<std::string_view> TakeToBracket() {
    const size_t begin = at_;
    char quote = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quote != 0) {
        if (c == '\\') ++at_;
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == ']') {
        return text_.substr(begin, at_++ - begin);
      }
    }
    return Error(Code::kInvalidArgument, "\"[\" is not closed");
  }

  Status ParseBrackets() {
    ASSIGN_OR_RETURN(const std::string_view inside, TakeToBracket());
    const std::vector<std::string> members = Members(inside);
    if (members.size() == 1) {
      ASSIGN_OR_RETURN(PathSteps steps, ParseMember(members[0]));
      std::ranges::move(steps, std::back_inserter(steps_));
      return Status::Ok();
    }
    UnionStep all;
    for (const std::string& member : members) {
      ASSIGN_OR_RETURN(PathSteps steps, ParseMember(Trim(member)));
      all.members.push_back(std::move(steps));
    }
    Add(std::move(all));
    return Status::Ok();
  }

  static std::vector<std::string> Members(std::string_view inside) {
    std::vector<std::string> members(1);
    bool quoted = false;
    for (const char c : inside) {
      if (c == '\'') quoted = !quoted;
      if (c == ',' && !quoted) {
        members.emplace_back();
      } else {
        members.back() += c;
      }
    }
    return members;
  }

  static Result<PathSteps> ParseMember(std::string_view text) {
    if (text == "*") return PathSteps{{SliceStep{}}};
    // kubectl reads a quoted name as a path: ['a.b'] is .a.b, and a dot of a name is escaped.
    if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'') {
      const std::string path = fmt::format(".{}", text.substr(1, text.size() - 2));
      return ExpressionParser(path).Parse();
    }
    std::vector<std::optional<int64_t>> numbers;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(':', begin), text.size());
      const std::string_view part = text.substr(begin, end - begin);
      const Result<int64_t> number = part.empty() ? Result<int64_t>(0) : ParseInt(part);
      const bool fits = number.ok() && *number >= -kMaxIndex && *number <= kMaxIndex;
      if (!fits || numbers.size() == 3) {
        return Error(Code::kInvalidArgument,
                     "invalid index [{}]: want a number, a slice, * or a 'name'", text);
      }
      numbers.push_back(part.empty() ? std::nullopt : std::optional(*number));
      begin = end + 1;
    }
    if (numbers.size() == 1) {
      const int64_t index = numbers[0].value_or(0);
      return PathSteps{{SliceStep{.begin = index, .end = index + 1, .is_index = true}}};
    }
    numbers.resize(3);
    return PathSteps{{SliceStep{.begin = numbers[0], .end = numbers[1], .step = numbers[2]}}};
  }

  // Takes the text up to ")]". Ignores ")]" in quotes.
  Result<std::string_view> TakeToFilterEnd() {
    const size_t begin = at_;
    char quote = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quote != 0) {
        if (c == quote && text_[at_ - 1] != '\\') quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (text_.substr(at_).starts_with(")]")) {
        const std::string_view inside = text_.substr(begin, at_ - begin);
        at_ += 2;
        return inside;
      }
    }
    return Error(Code::kInvalidArgument, "\"[?(\" is not closed by \")]\"");
  }

  Status ParseFilter() {
    ASSIGN_OR_RETURN(const std::string_view inside, TakeToFilterEnd());
    constexpr std::string_view kOperators = "!<>=";
    const size_t begin = inside.find_first_of(kOperators);
    FilterStep filter;
    ASSIGN_OR_RETURN(filter.left, ExpressionParser(inside.substr(0, begin)).Parse());
    if (begin != std::string_view::npos) {
      const size_t end = std::min(inside.find_first_not_of(kOperators, begin), inside.size());
      filter.comparison = inside.substr(begin, end - begin);
      ASSIGN_OR_RETURN(filter.right, ExpressionParser(inside.substr(end)).Parse());
      static constexpr std::string_view kKnown[] = {"==", "!=", "<", "<=", ">", ">="};
      if (std::ranges::find(kKnown, filter.comparison) == std::end(kKnown) ||
          filter.right.empty()) {
        return Error(Code::kInvalidArgument, "invalid filter {}: want LEFT OPERATOR RIGHT", inside);
      }
    }
    Add(std::move(filter));
    return Status::Ok();
  }

  const std::string_view text_;
  size_t at_ = 0;
  PathSteps steps_;
};

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view text) : text_(text) {}

  Result<std::shared_ptr<const Block>> Parse() {
    ASSIGN_OR_RETURN(std::shared_ptr<const Block> root, ParseBlock(0));
    return root;
  }

 private:
  Result<std::shared_ptr<const Block>> ParseBlock(int depth) {
    auto block = std::make_shared<Block>();
    while (at_ < text_.size()) {
      if (text_[at_] != '{') {
        const size_t end = std::min(text_.find('{', at_), text_.size());
        block->parts.push_back(
            {.text = std::string(text_.substr(at_, end - at_)), .is_text = true});
        at_ = end;
        continue;
      }
      ASSIGN_OR_RETURN(const std::string_view inside, TakeAction());
      if (inside == "end") {
        if (depth == 0) return Error(Code::kInvalidArgument, "{{end}} without {{range}}");
        return std::shared_ptr<const Block>(std::move(block));
      }
      const bool is_range = inside == "range" || inside.starts_with("range ");
      Block::Part part;
      ASSIGN_OR_RETURN(part.steps, ExpressionParser(is_range ? inside.substr(5) : inside).Parse());
      if (is_range) {
        ASSIGN_OR_RETURN(part.body, ParseBlock(depth + 1));
      }
      block->parts.push_back(std::move(part));
    }
    if (depth > 0) return Error(Code::kInvalidArgument, "{{range}} without {{end}}");
    return std::shared_ptr<const Block>(std::move(block));
  }

  // Takes the text up to the closing brace. Ignores braces in quotes.
  Result<std::string_view> TakeAction() {
    const size_t begin = ++at_;
    char quote = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quote != 0) {
        if (c == '\\') {
          ++at_;
        } else if (c == quote) {
          quote = 0;
        }
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '\\') {
        ++at_;
      } else if (c == '}') {
        return Trim(text_.substr(begin, at_++ - begin));
      }
    }
    return Error(Code::kInvalidArgument, "\"{{\" at column {} is not closed", begin);
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::shared_ptr<const JsonPath::Block>> ParsePathTemplate(std::string_view text) {
  return TemplateParser(text).Parse();
}

}  // namespace tessera::cli
