// Distances as commands: between samples, histograms and points.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "commands.h"
#include "numbers.h"
#include "operation.h"

namespace {

// One column becomes one row.
void lay_down(Table& table) {
  if (table.cols != 1 || table.rows == 1) return;
  table.cols = std::exchange(table.rows, 1);
  table.shape = {1, table.cols};
  table.header.clear();
  table.label_column.reset();
  table.labels.clear();
}

// The files of a distance: two of samples or points, and their weights.
struct Pair {
  std::string second, weights, second_weights, support;
};

isentropic::MatrixView<const double> as_row(Numbers& weights) {
  return {weights.values().data(), weights.values().empty() ? 0u : 1u, weights.values().size()};
}

// The distances of the rows of the first file from those of the second or from its only row: calculate(first, second,
// distances) gets equally many rows of both.
template <class Op>
Table of_rows(const Files& files, Numbers& first, Numbers& second, const auto& calculate) {
  const Table& others = second.table;
  if (others.rows != 1 && others.rows != first.table.rows) {
    bad_input("{}: {} has {} rows and {} has {}; only a single row is compared with all",
              isentropic::Described<Op>::kDescription.name, files::input_name(first.path), first.table.rows,
              files::input_name(second.path), others.rows);
  }
  const std::size_t rows = first.table.rows;
  const bool one_for_all = others.rows == 1;
  if (!one_for_all) {
    check_axes(files, first.table, second.path, others);
    check_labels(files, first.table, second.path, others);
  }
  if (one_for_all && rows != 1) {
    std::vector<double> repeated;
    repeated.reserve(rows * others.cols);
    for (std::size_t r = 0; r < rows; ++r) repeated.insert(repeated.end(), second.values().begin(), second.values().end());
    second.table.values = std::move(repeated);
    second.table.rows = rows;
  }
  std::vector<double> distance(rows);
  try {
    calculate(first.rows(), second.rows(), std::span<double>(distance));
  } catch (const isentropic::RowError& error) {
    if (error.argument() == "p") first.origin.refuse(error, error.row());
    if (error.argument() == "q") second.origin.refuse(error, one_for_all ? 0 : error.row());
    throw;
  }
  Table table = std::move(first.table);
  table.values = std::move(distance);
  table.cols = 1;
  table.shape.pop_back();
  if (!table.header.empty()) table.header = {std::string(isentropic::Described<Op>::kDescription.name)};
  return table;
}

Table of_samples(const isentropic::Wasserstein1d& op, const Pair& pair, const Files& files) {
  constexpr std::string_view kName = isentropic::Described<isentropic::Wasserstein1d>::kDescription.name;
  Numbers u = doubles(files, files.in), v = doubles(files, pair.second, Holds::same, u.table.width);
  lay_down(u.table);
  lay_down(v.table);
  Numbers a = weights_of(kName, files, pair.weights), b = weights_of(kName, files, pair.second_weights);
  return of_rows<isentropic::Wasserstein1d>(files, u, v, [&](auto x, auto y, auto distance) {
    naming_files({{"u", &u}, {"v", &v}, {"u_weights", &a}, {"v_weights", &b}},
                 [&] { isentropic::wasserstein_1d<double>(op, x, y, as_row(a), as_row(b), distance); });
  });
}

Table of_histograms(const isentropic::WassersteinHistogram& op, const Pair& pair, const Files& files) {
  Numbers p = doubles(files, files.in), q = doubles(files, pair.second, Holds::same, p.table.width);
  if (p.table.cols != q.table.cols) {
    bad_input("wasserstein_histogram: {} has {} columns and {} has {}", files::input_name(files.in), p.table.cols,
              files::input_name(pair.second), q.table.cols);
  }
  check_order(files, p.table, pair.second, q.table);
  Numbers support = weights_of("wasserstein_histogram", files, pair.support, "points");
  if (pair.support.empty()) {
    support.values().resize(p.table.cols);
    std::iota(support.values().begin(), support.values().end(), 0.0);
  }
  isentropic::WassersteinHistogram tolerant = op;
  if (!op.sum_tolerance) tolerant.sum_tolerance = std::max(p.tolerance, q.tolerance);
  return of_rows<isentropic::WassersteinHistogram>(files, p, q, [&](auto x, auto y, auto distance) {
    naming_files({{"support", &support}},
                 [&] { isentropic::wasserstein_histogram<double>(tolerant, x, y, support.values(), distance); });
  });
}

double distance_of(const isentropic::Wasserstein& op, auto... arguments) {
  return isentropic::wasserstein<double>(op, arguments...);
}
double distance_of(const isentropic::SinkhornDivergence& op, auto... arguments) {
  return isentropic::sinkhorn_divergence<double>(op, arguments...);
}
double distance_of(const isentropic::UnbalancedSinkhornDivergence& op, auto... arguments) {
  return isentropic::unbalanced_sinkhorn_divergence<double>(op, arguments...);
}

template <class Op>
Table of_points(const Op& op, const Pair& pair, const Files& files) {
  constexpr std::string_view kName = isentropic::Described<Op>::kDescription.name;
  Numbers x = doubles(files, files.in), y = doubles(files, pair.second, Holds::same, x.table.width);
  check_order(files, x.table, pair.second, y.table);
  Numbers a = weights_of(kName, files, pair.weights), b = weights_of(kName, files, pair.second_weights);
  Table table;
  table.rows = table.cols = 1;
  table.shape = {1};
  naming_files({{"x", &x}, {"y", &y}, {"a", &a}, {"b", &b}}, [&] {
    table.values = std::vector<double>{distance_of(op, x.rows(), y.rows(), std::span(a.values()), std::span(b.values()))};
  });
  return table;
}

// A command of two files. `weights` and `support` say which further files it takes.
template <class Op>
void add_distance(CLI::App& app, Program& program, Table (*evaluate)(const Op&, const Pair&, const Files&),
                  std::string_view holds, const std::array<std::string, 2>& weights, bool support, std::string_view second,
                  std::string_view rows, std::string_view example) {
  const auto arguments = std::make_shared<Arguments>(
      *find_operation(isentropic::family_info<isentropic::Transport>(), isentropic::Described<Op>::kDescription.name));
  const auto pair = std::make_shared<Pair>();
  CLI::App& command = add_command(app, program, arguments, holds, rows, example);
  add_path(command, std::string(second), pair->second, "standard input", "The file that FILE is compared with")
      ->option_text(" ")
      ->required();
  if (!weights[0].empty()) {
    add_path(command, spellings(weights[0]), pair->weights, "standard input",
             "Weights of FILE's samples or points (default: equal)")
        ->option_text("FILE");
    add_path(command, spellings(weights[1]), pair->second_weights, "standard input",
             fmt::format("Weights of {}'s samples or points (default: equal)", second))
        ->option_text("FILE");
  }
  if (support) {
    add_path(command, "--support", pair->support, "standard input",
             "Positions of the masses on the line (default: 0, 1, 2 ...)")
        ->option_text("FILE");
  }
  command.callback([arguments, pair, evaluate, &program] {
    program.action = [op = std::get<Op>(made<isentropic::Transport>(*arguments)), pair, evaluate, &files = program.files] {
      write_table(files, evaluate(op, *pair, files));
    };
  });
}

struct Slices {
  std::string second, weights, second_weights, directions;
  std::int64_t projections = 100;
  std::size_t seed = 0;
};

void add_sliced(CLI::App& app, Program& program) {
  static constexpr std::string_view kName = isentropic::Described<isentropic::SlicedWasserstein>::kDescription.name;
  const auto arguments = std::make_shared<Arguments>(*find_operation(isentropic::family_info<isentropic::Transport>(), kName));
  const auto options = std::make_shared<Slices>();
  CLI::App& command = add_command(app, program, arguments, "Points",
                                  "Each row is a point. The output is one row: distance, error.\n"
                                  "The error is the standard error from the choice of directions.\n",
                                  "x.csv y.csv --projections 500");
  add_path(command, "Y", options->second, "standard input", "The file that FILE is compared with")
      ->option_text(" ")
      ->required();
  add_path(command, "--a", options->weights, "standard input", "Weights of FILE's points (default: equal)")
      ->option_text("FILE");
  add_path(command, "--b", options->second_weights, "standard input", "Weights of Y's points (default: equal)")
      ->option_text("FILE");
  CLI::Option* const projections =
      add_number(command, "--projections", options->projections, "Number of directions to draw, above 0 (default 100)");
  CLI::Option* const seed = add_number(command, "--seed", options->seed, "Seed of the directions (default 0)");
  add_path(command, "--directions", options->directions, "standard input",
           "Directions to use instead of drawn ones, one in each row")
      ->option_text("FILE")
      ->excludes(projections)
      ->excludes(seed);
  command.callback([arguments, options, &program] {
    if (options->projections < 1) bad_input("{}: --projections must be above 0, got {}", kName, options->projections);
    program.action = [op = std::get<isentropic::SlicedWasserstein>(made<isentropic::Transport>(*arguments)), options,
                      &files = program.files] {
      Numbers x = doubles(files, files.in), y = doubles(files, options->second, Holds::same, x.table.width);
      check_order(files, x.table, options->second, y.table);
      Numbers a = weights_of(kName, files, options->weights), b = weights_of(kName, files, options->second_weights);
      Numbers directions = weights_of(kName, files, "");
      if (options->directions.empty()) {
        Table& drawn = directions.table;
        drawn.rows = static_cast<std::size_t>(options->projections), drawn.cols = x.table.cols;
        directions.values().resize(drawn.rows * drawn.cols);
        isentropic::random_directions({directions.values().data(), drawn.rows, drawn.cols}, options->seed);
      } else {
        directions = doubles(files, options->directions);
      }
      isentropic::SlicedWassersteinResult r;
      naming_files({{"x", &x}, {"y", &y}, {"a", &a}, {"b", &b}, {"directions", &directions}}, [&] {
        r = isentropic::sliced_wasserstein<double>(op, x.rows(), y.rows(), a.values(), b.values(), directions.rows());
      });
      Table table;
      table.rows = 1;
      table.cols = 2;
      table.shape = {1, 2};
      table.header = {"distance", "error"};
      table.values = std::vector<double>{r.distance, r.error};
      write_table(files, table);
    };
  });
}

}  // namespace

void add_distances(CLI::App& app, Program& program) {
  add_distance<isentropic::Wasserstein1d>(app, program, of_samples, "Samples", {"--u_weights", "--v_weights"}, false, "V",
                                          "Each row is a sample; a file with one column counts as one row.\n"
                                          "A V with one row is compared with every row of FILE, otherwise row by row.\n"
                                          "Weights hold for all rows.\n",
                                          "before.csv after.csv --order 2");
  add_distance<isentropic::WassersteinHistogram>(app, program, of_histograms, "Distributions", {}, true, "Q",
                                                 "A Q with one row is compared with every row of FILE, otherwise row by row.\n",
                                                 "p.csv q.csv --support ages.csv");
  add_distance<isentropic::Wasserstein>(app, program, of_points<isentropic::Wasserstein>, "Points", {"--a", "--b"}, false, "Y",
                                        "Each row is a point; the output is one number.\n", "x.csv y.csv --order 2");
  add_sliced(app, program);
  add_distance<isentropic::SinkhornDivergence>(app, program, of_points<isentropic::SinkhornDivergence>, "Points",
                                               {"--a", "--b"}, false, "Y", "Each row is a point; the output is one number.\n",
                                               "x.csv y.csv --epsilon 0.1");
  add_distance<isentropic::UnbalancedSinkhornDivergence>(
      app, program, of_points<isentropic::UnbalancedSinkhornDivergence>, "Points", {"--a", "--b"}, false, "Y",
      "Each row is a point; the output is one number.\n", "x.csv y.csv --epsilon 0.1 --penalty 1");
}
