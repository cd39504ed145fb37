// `entropic compare`: one row of scores under several maps, side by side.
#pragma once

#include <entropic/entropic.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/table.h"

struct Comparison {
  struct Column {
    std::string map;
    std::string parameters;  // "k = 50": the values shown that are no defaults, or nothing
    std::vector<double> p;
    double entropy;            // nats
    double effective_support;  // e^entropy: as many equal probabilities have the same entropy
    std::size_t zeros;
    double maximum;
  };

  std::string file;
  std::size_t row;
  std::string label;                 // the row's, or nothing
  std::vector<std::string> classes;  // a name for each score
  std::vector<double> x;
  std::vector<Column> columns;
};

// The maps that `names` lists, separated by commas; all of them if it is empty. With an entropy, entropy_normalize has that,
// also if it is not listed. Throws BadInput.
std::vector<entropic::Map> maps_by_name(const std::string& names, std::optional<double> entropy);

// Throws BadInput if the table has no such row.
Comparison compare(const files::Table& table, std::string_view file, std::size_t row, const std::vector<entropic::Map>& maps);

// At most `width` columns wide unless a single map needs more; bars of block characters or, without utf8, of #.
std::string comparison_text(const Comparison& comparison, std::size_t width, bool utf8);

// Numbers that JSON cannot write are the strings "nan", "inf" and "-inf".
std::string comparison_json(const Comparison& comparison);
