// `entropic compare`: one row of scores under several maps, side by side, and how all rows fare.
#pragma once

#include <entropic/entropic.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "files/table.h"

// How many rows have which entropy: counts of equal intervals from 0 to `top`, the largest entropy there can be.
struct Histogram {
  double top = 0;
  std::vector<std::size_t> counts;
  std::size_t undefined = 0;  // rows without a distribution
};

// Every row under every map, map after map for each row, and of the rows around the chosen one what the page shows.
struct Overview {
  static constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // of the numbers that the page holds

  // In the precision of the file: of each row that is kept `shown` scores, and for each map as many probabilities, what the
  // other classes have together, and the largest.
  template <class T>
  struct Numbers {
    std::vector<T> scores, p, rest, maximum;
  };

  std::vector<double> entropy;  // of all rows
  std::vector<Histogram> histograms;
  std::size_t first = 0, rows = 0;  // those that are kept
  std::size_t shown = 0;            // classes of each
  std::vector<std::uint32_t> classes, zeros;
  std::variant<Numbers<float>, Numbers<double>> numbers;
};

// How far the rows around the chosen one are apart under a map, each from each: count x count numbers, NaN where a row has no
// distribution.
struct Distances {
  std::size_t first = 0;  // of these rows, in the file
  std::size_t count = 0;
  std::vector<double> js_distance, total_variation;
  std::vector<double> wasserstein;  // of order 1, the classes at 0, 1, 2 ...
};

struct Comparison {
  struct Column {
    std::string map;
    std::string parameters;  // "k = 50": the values shown that are no defaults, or nothing
    std::vector<double> p;
    double entropy;            // nats
    double effective_support;  // e^entropy: as many equal probabilities have the same entropy
    std::size_t zeros;
    double maximum;
    std::string values = "{}";  // of all parameters, as JSON
  };

  std::string file;
  std::size_t row;
  std::string label;                 // the row's, or nothing
  std::vector<std::string> classes;  // a name for each score
  std::vector<double> x;
  std::vector<Column> columns;
  std::vector<Histogram> histograms;  // of all rows, for each column, or none
  std::vector<Distances> distances;   // for each column, or none
};

// The maps that `names` lists, separated by commas; all of them if it is empty. With an entropy, entropy_normalize has that,
// also if it is not listed. Throws BadInput.
std::vector<entropic::Map> maps_by_name(const std::string& names, std::optional<double> entropy);

// Throws BadInput if the table has no such row.
Comparison compare(const files::Table& table, std::string_view file, std::size_t row, const std::vector<entropic::Map>& maps);

// The row's distributions.
std::vector<Comparison::Column> columns_of(const files::Table& table, std::size_t row, const std::vector<entropic::Map>& maps);

// The row's scores.
std::vector<double> scores_of(const files::Table& table, std::size_t row);

// Which classes to show: all in their order or, of many, those of the largest scores first.
std::vector<std::size_t> shown_classes(const std::vector<double>& x);

// What the classes that are not shown have together.
double rest_of(const Comparison::Column& column, const std::vector<std::size_t>& shown);

// Rows side by side on several threads. The table is of float or double.
Overview overview(const files::Table& table, std::size_t row, const std::vector<entropic::Map>& maps, bool quiet);

// For each map, over at most 40 rows, fewer of very long ones.
std::vector<Distances> row_distances(const files::Table& table, std::size_t row, const std::vector<entropic::Map>& maps);

// At most `width` columns wide unless a single map needs more; bars of block characters or, without utf8, of #.
std::string comparison_text(const Comparison& comparison, std::size_t width, bool utf8);

// Numbers that JSON cannot write are the strings "nan", "inf" and "-inf".
std::string comparison_json(const Comparison& comparison);

// A page of its own that shows the row and lets the reader step through those around it; with the library of the explorer's
// page, if there is one, also move the maps.
std::string comparison_html(const Comparison& comparison, const files::Table& table, const Overview& all,
                            const std::optional<std::string>& explorer);
