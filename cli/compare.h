// `isentropic compare`: one row of scores under several maps side by side, and a summary of all rows.
#pragma once

#include <isentropic/isentropic.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "files/table.h"

// Numbers of rows by entropy, in equal intervals from 0 to `top`, the largest possible entropy.
struct Histogram {
  double top = 0;
  std::vector<std::size_t> counts;
  std::size_t undefined = 0;  // rows without a distribution
};

// The entropies of every row under every map (map after map for each row), and the numbers that the page shows of the rows
// around the chosen one.
struct Overview {
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // bytes of the numbers in the page

  // Numbers in the precision of the file. Each kept row has `shown` scores and, for each map, as many probabilities, the sum of
  // the other classes, and the largest probability.
  template <class T>
  struct Numbers {
    std::vector<T> scores, p, rest, maximum;
  };

  std::vector<double> entropy;  // of all rows
  std::vector<Histogram> histograms;
  std::size_t first = 0, rows = 0;  // the kept rows
  std::size_t shown = 0;            // shown classes of each row
  std::vector<std::uint32_t> classes, zeros;
  std::variant<Numbers<float>, Numbers<double>> numbers;
};

// The distances between the rows around the chosen one under a map: count x count numbers, NaN if a row has no distribution.
struct Distances {
  std::size_t first = 0;  // number of the first of these rows in the file
  std::size_t count = 0;
  std::vector<double> js_distance, total_variation;
  std::vector<double> wasserstein;  // of order 1, the classes at 0, 1, 2 ...
};

struct Comparison {
  struct Column {
    std::string map;
    std::string parameters;  // "k = 50": the values that are no defaults, or nothing
    std::vector<double> p;
    double entropy;            // nats
    double effective_support;  // e^entropy: the number of equal probabilities with the same entropy
    std::size_t zeros;
    double maximum;
    std::string values = "{}";  // of all parameters, as JSON
  };

  std::string file;
  std::size_t row;                           // among those that were read
  std::size_t before = 0;                    // rows of the file before the first one that was read
  std::string label;                         // the row's label, or nothing
  std::optional<files::Table::Token> token;  // what a reply says of it
  std::vector<std::string> classes;          // a name for each score
  std::vector<double> x;
  std::vector<Column> columns;
  std::vector<Histogram> histograms;  // of all rows, for each column, or none
  std::vector<Distances> distances;   // for each column, or none
};

// The maps that `names` lists, separated by commas; all of them if it is empty. With an entropy, entropy_normalize has that
// entropy and is included even if it is not listed. Throws BadInput.
std::vector<isentropic::Map> maps_by_name(const std::string& names, std::optional<double> entropy);

// `before`: rows of the file that come before the table. Throws BadInput if the table has no such row of the file.
Comparison compare(const files::Table& table, std::string_view file, std::size_t before, std::size_t row,
                   const std::vector<isentropic::Map>& maps);

// The row's distributions.
std::vector<Comparison::Column> columns_of(const files::Table& table, std::size_t row,
                                           const std::vector<isentropic::Map>& maps);

// The names of the row's scores: the candidates of a token, those of the columns, or their numbers.
std::vector<std::string> class_names(const files::Table& table, std::size_t row);

// The row's scores.
std::vector<double> scores_of(const files::Table& table, std::size_t row);

// The classes to show: all in their order or, if there are many, those with the largest scores, largest first.
std::vector<std::size_t> shown_classes(const std::vector<double>& x);

// The probability of the classes that are not shown, together.
double rest_of(const Comparison::Column& column, const std::vector<std::size_t>& shown);

// The overview of all rows, calculated on several threads. The table is of float or double.
Overview overview(const files::Table& table, std::size_t row, const std::vector<isentropic::Map>& maps, bool quiet);

// The distances for each map, over at most 40 rows, fewer if rows are very long.
std::vector<Distances> row_distances(const files::Table& table, std::size_t row, const std::vector<isentropic::Map>& maps);

// The comparison as text, at most `width` columns wide unless a single map needs more. Bars are block characters or, without
// utf8, #.
std::string comparison_text(const Comparison& comparison, std::size_t width, bool utf8);

// The comparison as JSON. Numbers that JSON cannot write are the strings "nan", "inf" and "-inf".
std::string comparison_json(const Comparison& comparison);

// The comparison as a page that shows the row and lets the reader step through those around it. With the explorer's page, whose
// library it takes, the reader can also move the maps.
std::string comparison_html(const Comparison& comparison, const files::Table& table, const Overview& all,
                            const std::optional<std::string>& explorer);
