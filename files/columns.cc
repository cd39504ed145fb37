#include "columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <span>

#include "text.h"

namespace files {
namespace {

using Words = std::vector<std::string>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

// The words of a name in small letters: y_true, "Y true" and yTrue are y and true. A number is a word.
Words words_of(std::string_view name) {
  Words words;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (!is_digit(c) && !is_upper(c) && !is_lower(c) && static_cast<unsigned char>(c) < 0x80) continue;  // a separator
    const char before = i > 0 ? name[i - 1] : ' ', behind = i + 1 < name.size() ? name[i + 1] : ' ';
    const bool letter_before = is_upper(before) || is_lower(before) || static_cast<unsigned char>(before) >= 0x80;
    const bool begins = is_digit(c) ? !is_digit(before) : is_upper(c) ? !is_upper(before) || is_lower(behind) : !letter_before;
    if (begins) words.emplace_back();
    words.back() += is_upper(c) ? static_cast<char>(std::tolower(c)) : c;
  }
  return words;
}

bool is_number_word(const std::string& word) { return is_digit(word[0]); }

bool is_among(std::string_view word, std::span<const std::string_view> list) {
  return std::ranges::find(list, word) != list.end();
}

constexpr auto kIds =
    std::to_array<std::string_view>({"id", "ids", "idx", "idxs", "identifier", "identifiers", "uid", "uuid", "guid"});

// Words that may be joined to an identifier: userid.
constexpr auto kOwners = std::to_array<std::string_view>(
    {"account", "batch",    "case",    "cell",  "chunk", "class",  "clip",     "category",  "customer", "device",
     "doc",     "document", "example", "file",  "frame", "gene",   "image",    "img",       "instance", "item",
     "job",     "label",    "msg",     "node",  "obj",   "object", "order",    "passenger", "patient",  "person",
     "product", "question", "record",  "row",   "run",   "sample", "sentence", "seq",       "session",  "speaker",
     "store",   "subject",  "target",  "token", "user",  "utt",    "video"});

constexpr auto kOfRows = std::to_array<std::string_view>(
    {"epoch", "fold", "participant", "patient", "pid", "qid", "session", "speaker", "step", "subject", "timestamp", "user"});

constexpr auto kRecords =
    std::to_array<std::string_view>({"case", "example", "item", "line", "record", "row", "sample", "serial"});
constexpr auto kCounts = std::to_array<std::string_view>({"index", "name", "names", "nr", "no", "num", "number"});
constexpr auto kIndices = std::to_array<std::string_view>({"fileno", "indices", "lineno", "linenum", "rowid", "rowindex",
                                                           "rowname", "rownames", "rowno", "rownum", "rownumber", "sno"});

constexpr auto kLabels =
    std::to_array<std::string_view>({"class", "classes", "label", "labels", "target", "targets", "token", "tokens"});

// Words that make a label of the words after them, and words that end such a name.
constexpr auto kBeforeLabels =
    std::to_array<std::string_view>({"actual", "class", "correct", "expected", "gold", "golden", "ground", "gt", "label",
                                     "observed", "pred", "predicted", "real", "reference", "target", "token", "true", "y"});
constexpr auto kEndsOfLabels =
    std::to_array<std::string_view>({"actual", "class", "classes", "code", "id", "ids", "idx", "index", "label", "labels",
                                     "num", "number", "target", "targets", "test", "train", "true", "truth", "y"});

constexpr auto kPerhapsLabels = std::to_array<std::string_view>(
    {"actual",  "annotation", "answer",   "category",  "cls",        "gold",        "golden",  "groundtruth",
     "gt",      "lbl",        "pred",     "predicted", "prediction", "predictions", "preds",   "tgt",
     "truth",   "y",          "ypred",    "ytest",     "ytrue",      "etiqueta",    "etikett", "klasse",
     "outcome", "species",    "survived", "yhat",      "étiquette",  "标签",        "类别"});

// Whole numbers under a name with one of these words, such as image_label and class_name, are labels.
constexpr auto kOfLabels = std::to_array<std::string_view>(
    {"class", "classes", "label", "labels", "subclass", "superclass", "sublabel", "target", "targets"});

constexpr auto kScores = std::to_array<std::pair<std::string_view, std::string_view>>({{"logit", "logit"},
                                                                                       {"logits", "logit"},
                                                                                       {"logprob", "logprob"},
                                                                                       {"logprobs", "logprob"},
                                                                                       {"prob", "prob"},
                                                                                       {"proba", "prob"},
                                                                                       {"probs", "prob"},
                                                                                       {"probability", "prob"},
                                                                                       {"probabilities", "prob"},
                                                                                       {"score", "score"},
                                                                                       {"scores", "score"}});

bool is_whole(Written number) { return number == Written::whole || number == Written::zero || number == Written::dotted; }

bool is_id(const std::string& word) {
  if (is_among(word, kIds)) return true;
  return std::ranges::any_of(kIds, [&](std::string_view id) {
    return word.ends_with(id) && is_among(std::string_view(word).substr(0, word.size() - id.size()), kOwners);
  });
}

// Whether a name is that of rows, whatever their numbers are.
bool surely_names_rows(const Words& words) {
  if (words.empty()) return false;
  if (words.size() == 1) return is_id(words[0]) || words[0] == "index" || words[0] == "row";
  return words.size() == 2 && ((words[0] == "row" && words[1] == "id") || (words[0] == "unnamed" && words[1] == "0"));
}

bool perhaps_names_rows(const Words& words) {
  if (words.empty()) return false;
  if (std::ranges::any_of(words, is_id) || words.back() == "index" || surely_names_rows(words)) return true;
  // A single numbered column: several numbered columns are found before.
  if (words.size() == 2 && words[0] == "index" && is_number_word(words[1])) return true;
  if (words.size() == 2 && words[0] == "s" && words[1] == "no") return true;
  if (words.size() == 1) return is_among(words[0], kOfRows) || is_among(words[0], kIndices);
  if (words[0] == "unnamed" && is_number_word(words[1])) return true;
  // Indices of pandas: level_0, __index_level_0__.
  const bool level = words[words.size() - 2] == "level" && is_number_word(words.back());
  if (level && (words.size() == 2 || words[0] == "index")) return true;
  return words.size() == 2 &&
         ((is_among(words[0], kRecords) && is_among(words[1], kCounts)) || (words[0] == "id" && words[1] == "code"));
}

bool surely_names_labels(const Words& words) {
  if (words.size() == 1) return is_among(words[0], kLabels);
  return words.size() > 1 && is_among(words.back(), kEndsOfLabels) &&
         std::all_of(words.begin(), words.end() - 1, [](const std::string& word) { return is_among(word, kBeforeLabels); });
}

bool is_of_labels(const Words& words) {
  return std::ranges::any_of(words, [](const std::string& word) { return is_among(word, kOfLabels); });
}

bool perhaps_names_labels(const Words& words) {
  if (words.empty()) return false;
  if (words.size() == 2 && words[0] == "y" && words[1] == "hat") return true;
  return is_among(words.back(), kPerhapsLabels) &&
         std::all_of(words.begin(), words.end() - 1, [](const std::string& word) { return is_among(word, kBeforeLabels); });
}

// The kind of scores that a name says: the word before or after that of the class, as in logit_0, cat_logit and "log prob 3".
std::string_view kind_of(Words words) {
  while (!words.empty() && is_number_word(words.back())) words.pop_back();
  if (words.empty()) return "";
  const bool logs = words.size() > 1 && words[0] == "log";
  for (const std::string& word : {logs ? words[1] : words[0], words.back()}) {
    for (const auto& [score, kind] : kScores) {
      if (word == score) return logs && kind == "prob" ? "logprob" : kind;
    }
  }
  return "";
}

// The columns that share a name and are numbered from 0 or 1 without a gap.
std::vector<bool> numbered(const std::vector<Words>& names) {
  std::map<Words, std::vector<std::pair<std::string, std::size_t>>> groups;
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (names[c].empty() || !is_number_word(names[c].back())) continue;
    std::string number = names[c].back();
    number.erase(0, std::min(number.find_first_not_of('0'), number.size() - 1));
    groups[Words(names[c].begin(), names[c].end() - 1)].emplace_back(number, c);
  }
  std::vector<bool> found(names.size());
  for (const auto& group : groups) {
    const std::vector<std::pair<std::string, std::size_t>>& columns = group.second;
    const auto has = [&](std::size_t number) {
      return std::ranges::any_of(columns, [&](const auto& column) { return column.first == fmt::format("{}", number); });
    };
    if (columns.size() < 2 || columns.size() > 1u << 20) continue;
    std::vector<std::string> numbers;
    for (const auto& column : columns) numbers.push_back(column.first);
    std::ranges::sort(numbers);
    const std::size_t start = has(0) ? 0 : 1;
    std::vector<std::string> wanted;
    for (std::size_t i = 0; i < columns.size(); ++i) wanted.push_back(fmt::format("{}", start + i));
    std::ranges::sort(wanted);
    if (numbers != wanted) continue;
    for (const auto& column : columns) found[column.second] = true;
  }
  return found;
}

std::string beside(const std::vector<std::string>& names, const std::vector<bool>& scores, std::size_t others) {
  std::vector<std::string> first;
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (scores[c]) first.push_back(names[c]);
  }
  return fmt::format(", since {} beside {}", others == 1 ? "it stands" : "they stand", in_words(first));
}

Doubt doubt_beside(const std::vector<std::string>& names, const std::vector<Words>& words, const std::vector<Written>& first) {
  const std::size_t n = names.size();
  Doubt doubt;
  // Those that are called scores, of the kind that comes first.
  std::map<std::string_view, std::size_t> counts;
  std::vector<std::string_view> kinds;
  for (const Words& name : words) ++counts[kinds.emplace_back(kind_of(name))];
  const auto kind = std::ranges::find_if(kinds, [&](std::string_view one) { return !one.empty() && counts[one] > 1; });
  std::vector<bool> scores(n);
  if (kind != kinds.end()) {
    for (std::size_t c = 0; c < n; ++c) scores[c] = kinds[c] == *kind;
    for (std::size_t c = 0; c < n; ++c) {
      if (!scores[c]) doubt.columns.push_back(c);
    }
  } else {
    // Classes may be called type1, type2 and other: only whole numbers beside fractions are in doubt.
    scores = numbered(words);
    bool fractions = false;
    for (std::size_t c = 0; c < n; ++c) fractions |= scores[c] && first[c] == Written::fraction;
    for (std::size_t c = 0; c < n && fractions; ++c) {
      if (!scores[c] && is_whole(first[c])) doubt.columns.push_back(c);
    }
  }
  if (!doubt.columns.empty()) doubt.reason = beside(names, scores, doubt.columns.size());
  return doubt;
}

}  // namespace

Written written_as(std::string_view text, double number) {
  if (!std::isfinite(number)) return Written::other;
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.find_first_not_of("0123456789") == text.npos) return number == 0 ? Written::zero : Written::whole;
  return number == std::floor(number) ? Written::dotted : Written::fraction;
}

Doubt doubt_by_names(const std::vector<std::string>& names, const std::vector<Written>& first, bool rows_only) {
  const bool fractions = std::ranges::find(first, Written::fraction) != first.end();
  std::vector<Words> words;
  for (const std::string& name : names) words.push_back(words_of(name));
  // y is a label, but not beside x or n.
  const auto letters = std::ranges::count_if(words, [](const Words& name) { return name.size() == 1 && name[0].size() == 1; });
  const std::vector<bool> series = numbered(words);  // class_0, class_1: scores of classes
  // "first class", "second class": likewise, if there is not more beside them.
  const auto of_labels = std::ranges::count_if(words, is_of_labels);
  const bool few_labels = 2 * of_labels < std::ssize(words);
  Doubt doubt;
  if (!rows_only) doubt = doubt_beside(names, words, first);
  for (std::size_t c = 0; c < names.size(); ++c) {
    const bool whole = is_whole(first[c]) && !series[c];
    bool found = surely_names_rows(words[c]);
    found |= names[c].empty();  // pandas calls its index so; in a .csv it is the corner, whose column has labels
    found |= whole && perhaps_names_rows(words[c]);
    found |= whole && fractions && words[c].size() == 1 && is_among(words[c][0], kRecords);  // case, record, sample
    const bool letter = words[c].size() == 1 && words[c][0].size() == 1;
    if (!rows_only) {
      found |= surely_names_labels(words[c]) || (whole && perhaps_names_labels(words[c]) && !(letter && letters > 1)) ||
               (whole && few_labels && is_of_labels(words[c]));
    }
    if (found) doubt.columns.push_back(c);
  }
  std::ranges::sort(doubt.columns);
  doubt.columns.erase(std::unique(doubt.columns.begin(), doubt.columns.end()), doubt.columns.end());
  return doubt;
}

bool names_no_scores(const std::string& name) {
  const Words words = words_of(name);
  return surely_names_rows(words) || perhaps_names_rows(words) || surely_names_labels(words);
}

void WholeColumns::add(const std::vector<Written>& written, const std::vector<double>& numbers) {
  columns_.resize(written.size());
  last_.resize(written.size());
  for (std::size_t c = 0; c < written.size(); ++c) {
    Column& column = columns_[c];
    column.whole |= written[c] == Written::whole;
    column.zero |= written[c] == Written::zero;
    column.dotted |= written[c] == Written::dotted;
    column.fraction |= written[c] == Written::fraction;
    const bool bare = written[c] == Written::whole || written[c] == Written::zero;
    if (bare && std::abs(numbers[c]) < 100) column.large = false;
    column.counts &= bare && (rows_ == 0 ? numbers[c] == 0 || numbers[c] == 1 : numbers[c] == last_[c] + 1);
    last_[c] = numbers[c];
  }
  ++rows_;
}

Doubt WholeColumns::doubt(bool named) const {
  // In a sparse distribution, 0 and 1 are written without a point too.
  const auto count = [&](const auto& is) { return std::ranges::count_if(columns_, is); };
  const bool mixed = count([](const Column& one) { return one.pointed() && one.bare(); }) > 0;
  const auto pointed = count([](const Column& one) { return one.pointed() && !one.bare(); });
  const bool fractions = count([](const Column& one) { return one.fraction || one.dotted; }) > 0;
  const bool dots = count([](const Column& one) { return one.dotted; }) > 0;  // whole scores are written with a point
  const bool sure = !mixed && ((dots && pointed > 0) || (pointed > 1 && (named || rows_ > 1)) || (pointed > 0 && rows_ > 2));
  Doubt doubt;
  for (std::size_t c = 0; c < columns_.size() && fractions; ++c) {
    const Column& one = columns_[c];
    if (!one.whole || one.pointed()) continue;
    const bool first = std::none_of(columns_.begin(), columns_.begin() + static_cast<std::ptrdiff_t>(c),
                                    [](const Column& other) { return other.pointed(); });
    if (sure || one.large || (first && one.counts && rows_ > 2)) doubt.columns.push_back(c);
  }
  if (!doubt.columns.empty()) {
    doubt.reason =
        fmt::format(", since {} whole numbers and others have fractions", doubt.columns.size() == 1 ? "it has" : "they have");
  }
  return doubt;
}

std::size_t rows_to_point(const Table& table) {
  if (!table.pointed || table.first_row > 0) return 0;
  WholeColumns columns;
  fmt::memory_buffer text;
  std::visit(
      [&](const auto& values) {
        for (std::size_t r = 0; r < table.rows && !columns.done(); ++r) {
          std::vector<Written> written;
          std::vector<double> numbers;
          for (std::size_t c = 0; c < table.cols; ++c) {
            const auto value = values[r * table.cols + c];
            text.clear();
            append_number(text, value, table.digits);
            double& number = numbers.emplace_back(0);
            read_number({text.data(), text.size()}, number);
            written.push_back(written_as({text.data(), text.size()}, number));
          }
          columns.add(written, numbers);
        }
      },
      table.values);
  return columns.doubt(!table.header.empty()).columns.empty() ? 0 : WholeColumns::kRows;
}

void add_point(fmt::memory_buffer& out, std::size_t begin) {
  const std::string_view number(out.data() + begin, out.size() - begin);
  if (number.find_first_not_of("-0123456789") == number.npos) out.append(std::string_view(".0"));
}

std::string in_words(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  const std::size_t shown = names.size() > kMost ? kMost - 1 : names.size();
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + in_quotes(names[i]);
  }
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string as_ranges(const std::vector<std::size_t>& columns) {
  std::string text;
  for (std::size_t i = 0; i < columns.size();) {
    std::size_t end = i + 1;
    while (end < columns.size() && columns[end] == columns[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", columns[i] + 1);
    if (end - i > 1) text += fmt::format("-{}", columns[end - 1] + 1);
    i = end;
  }
  return text;
}

}  // namespace files
