// Transport as commands: the cheapest plan between two sets of masses, exact or with entropy, and distances between samples,
// histograms and points.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "files/file.h"
#include "operation.h"
#include "rows.h"

namespace {

// A file's numbers as float64 in the shape of the file, and the tolerance for their sums.
struct Numbers {
  std::string path;
  Table table;
  double tolerance;
  Origin origin;

  std::vector<double>& values() { return std::get<std::vector<double>>(table.values); }
  entropic::MatrixView<const double> rows() { return {values().data(), table.rows, table.cols}; }
};

Numbers doubles(const Files& files, const std::string& path) {
  Table table = read_other(files, path);
  const double tolerance = std::visit([]<class T>(const std::vector<T>&) { return entropic::kSumTolerance<T>; }, table.values);
  table.values = as_doubles(table);
  const Origin origin(table, path);
  return {path, std::move(table), tolerance, origin};
}

// Calls solve(), which takes the library's arguments of these names from these files, and refuses the file of the one that the
// library refuses.
using Given = std::vector<std::pair<std::string_view, const Numbers*>>;
void naming_files(const Given& given, const auto& solve) {
  try {
    solve();
  } catch (const std::invalid_argument& error) {
    const std::string what = error.what();
    const std::string_view wrong = std::string_view(what).substr(std::min(what.find(": ") + 2, what.size()));
    std::vector<std::string> paths;
    for (const auto& [name, numbers] : given) {
      if (wrong.starts_with(fmt::format("{} must", name))) numbers->origin.refuse(what);
      paths.push_back(files::input_name(numbers->path));
    }
    if (given.size() < 2 || !wrong.starts_with(fmt::format("{} and {} must", given[0].first, given[1].first))) throw;
    bad_input("{}; they are in {} and {}", what, paths[0], paths[1]);
  }
}

// One column becomes one row.
void lay_down(Table& table) {
  if (table.cols != 1 || table.rows == 1) return;
  table.cols = std::exchange(table.rows, 1);
  table.shape = {1, table.cols};
  table.header.clear();
  table.label_column.reset();
  table.labels.clear();
}

// Numbers in one row or one column.
Numbers one_line(std::string_view command, std::string_view what, const Files& files, const std::string& path) {
  Numbers numbers = doubles(files, path);
  if (numbers.table.rows != 1 && numbers.table.cols != 1) {
    bad_input("{}: {} must be one row or one column of {}, got {} x {}", command, files::input_name(path), what,
              numbers.table.rows, numbers.table.cols);
  }
  return numbers;
}

Table one_row(std::vector<std::string> names, std::vector<double> numbers, std::string note_name, std::string_view note) {
  Table table;
  table.rows = 1;
  table.cols = names.size();
  table.shape = {1, names.size()};
  table.header = std::move(names);
  table.values = std::move(numbers);
  table.note_header = std::move(note_name);
  table.notes = {std::string(note)};
  return table;
}

struct Plan {
  std::string a, b, cost;
};

// Masses and costs from files, and the plan between the masses.
struct Problem {
  Numbers from, to, cost;
  Table plan;
  std::vector<double> f, g;

  Problem(std::string_view command, const Plan& options, const Files& files)
      : from(one_line(command, "masses", files, options.a)),
        to(one_line(command, "masses", files, options.b)),
        cost(doubles(files, options.cost)),
        plan(cost.table) {
    f.resize(from.values().size());
    g.resize(to.values().size());
    if (plan.rows != f.size() || plan.cols != g.size()) {
      bad_input("{}: {} must be {} x {}, one row for each mass of --a and one column for each of --b, got {} x {}", command,
                files::input_name(options.cost), f.size(), g.size(), plan.rows, plan.cols);
    }
  }

  // solve(a, b, cost, plan, f, g)
  void solve(const auto& by) {
    const std::size_t n = f.size(), m = g.size();
    naming_files({{"a", &from}, {"b", &to}, {"cost", &cost}}, [&] {
      by(entropic::MatrixView<const double>(from.values().data(), 1, n),
         entropic::MatrixView<const double>(to.values().data(), 1, m), entropic::MatrixView<const double>(cost.rows()),
         entropic::MatrixView<double>(std::get<std::vector<double>>(plan.values).data(), n, m),
         entropic::MatrixView<double>(f.data(), 1, n), entropic::MatrixView<double>(g.data(), 1, m));
    });
  }
};

// Writes the row of results and, if a file is named for it, the plan.
void write_both(const Table& found, Table& plan, const Files& files) {
  if (files.out.empty()) return write_table(files, found);
  // The plan's file only appears once the result is written too.
  files::Output output(files.out);
  plan.digits = files.digits;
  files::write_all(files::output_format(files.out, files.out_format), output, plan);
  Files row;
  row.digits = files.digits;
  if (!files::is_standard(files.out)) write_table(row, found);
  output.finish();
}

std::string_view word_of(std::string_view command, entropic::TransportStatus status) {
  if (status == entropic::TransportStatus::infeasible) {
    throw std::runtime_error(fmt::format("{}: infeasible: every plan needs an entry of cost inf", command));
  }
  return entropic::kTransportStatusNames[static_cast<std::size_t>(status)];
}

std::string_view word_of(bool converged) { return converged ? "converged" : "not converged"; }

Table between(const entropic::PartialTransport& op, Problem& problem) {
  std::vector<entropic::PartialTransportResult> result(1);
  problem.solve([&](auto... views) { entropic::partial_transport<double>(op, views..., result); });
  const entropic::PartialTransportResult& r = result[0];
  return one_row({"cost", "multiplier", "gap"}, {r.cost, r.multiplier, r.gap}, "status",
                 word_of(entropic::PartialTransport::kDescription.name, r.status));
}

Table between(const entropic::UnbalancedSinkhorn& op, Problem& problem) {
  std::vector<entropic::UnbalancedSinkhornResult> result(1);
  problem.solve([&](auto... views) { entropic::unbalanced_sinkhorn<double>(op, views..., result); });
  const entropic::UnbalancedSinkhornResult& r = result[0];
  return one_row({"value", "gap", "iterations"}, {r.value, r.gap, static_cast<double>(r.iterations)}, "status",
                 word_of(r.converged));
}

struct BalancedPlan : Plan {
  std::optional<double> epsilon;
  Arguments entropic = Arguments(*find_operation(entropic::family_info<entropic::Transport>(), "sinkhorn"));
};

// Refuses a problem without a plan, for which Sinkhorn's iteration would not end. The exact solver finds a plan at once if all
// allowed moves are free.
void require_plan(Problem& problem, double mass_tolerance) {
  const std::vector<double> cost = problem.cost.values();
  if (std::ranges::find(cost, std::numeric_limits<double>::infinity()) == cost.end()) return;
  for (double& one : problem.cost.values()) one = std::isfinite(one) ? 0 : one;
  std::vector<entropic::TransportResult> result(1);
  problem.solve([&](auto... views) { entropic::optimal_transport<double>({mass_tolerance}, views..., result); });
  word_of("transport", result[0].status);
  problem.cost.values() = cost;
}

void transport(const BalancedPlan& options, const Files& files) {
  Problem problem("transport", options, files);
  Arguments arguments = options.entropic;
  const auto argument = [&](std::string_view name) -> entropic::ParamValue& {
    std::size_t i = 0;
    while (arguments.info.params[i].name != name) ++i;
    return arguments.values[i];
  };
  const auto* const given = std::get_if<double>(&argument("mass_tolerance"));
  const double mass_tolerance = given != nullptr ? *given : std::max(problem.from.tolerance, problem.to.tolerance);
  if (options.epsilon) {
    std::vector<entropic::SinkhornResult> result(1);
    argument("epsilon") = *options.epsilon;
    argument("mass_tolerance") = mass_tolerance;
    const auto op = std::get<entropic::Sinkhorn>(made<entropic::Transport>(arguments));
    require_plan(problem, mass_tolerance);
    problem.solve([&](auto... views) { entropic::sinkhorn<double>(op, views..., result); });
    const entropic::SinkhornResult& r = result[0];
    const Table found = one_row({"cost", "lower_bound", "upper_bound", "marginal_error", "iterations"},
                                {r.cost, r.lower_bound, r.upper_bound, r.marginal_error, static_cast<double>(r.iterations)},
                                "status", word_of(r.converged));
    write_both(found, problem.plan, files);
  } else {
    std::vector<entropic::TransportResult> result(1);
    problem.solve([&](auto... views) { entropic::optimal_transport<double>({mass_tolerance}, views..., result); });
    const std::string_view status = word_of("transport", result[0].status);
    write_both(one_row({"cost", "gap"}, {result[0].cost, result[0].gap}, "status", status), problem.plan, files);
  }
}

// The files of a distance: two of samples or points, and their weights.
struct Pair {
  std::string second, weights, second_weights, support;
};

// The weights, or other numbers, of a file; none without a file.
Numbers weights_of(std::string_view command, const Files& files, const std::string& path, std::string_view what = "weights") {
  if (!path.empty()) return one_line(command, what, files, path);
  Table none;
  none.values = std::vector<double>();
  return {path, none, 0, Origin(none, path)};
}

entropic::MatrixView<const double> as_row(Numbers& weights) {
  return {weights.values().data(), weights.values().empty() ? 0u : 1u, weights.values().size()};
}

// The distances of the rows of the first file from those of the second or from its only row: calculate(first, second,
// distances) gets equally many rows of both.
template <class Op>
Table of_rows(Numbers& first, Numbers& second, const auto& calculate) {
  const Table& others = second.table;
  if (others.rows != 1 && others.rows != first.table.rows) {
    bad_input("{}: {} has {} rows and {} has {}; only a single row is compared with all", Op::kDescription.name,
              files::input_name(first.path), first.table.rows, files::input_name(second.path), others.rows);
  }
  const std::size_t rows = first.table.rows;
  const bool one_for_all = others.rows == 1;
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
  } catch (const entropic::RowError& error) {
    if (error.argument() == "p") first.origin.refuse(error, error.row());
    if (error.argument() == "q") second.origin.refuse(error, one_for_all ? 0 : error.row());
    throw;
  }
  Table table = std::move(first.table);
  table.values = std::move(distance);
  table.cols = 1;
  table.shape.pop_back();
  if (!table.header.empty()) table.header = {std::string(Op::kDescription.name)};
  return table;
}

Table of_samples(const entropic::Wasserstein1d& op, const Pair& pair, const Files& files) {
  constexpr std::string_view kName = entropic::Wasserstein1d::kDescription.name;
  Numbers u = doubles(files, files.in), v = doubles(files, pair.second);
  lay_down(u.table);
  lay_down(v.table);
  Numbers a = weights_of(kName, files, pair.weights), b = weights_of(kName, files, pair.second_weights);
  return of_rows<entropic::Wasserstein1d>(u, v, [&](auto x, auto y, auto distance) {
    naming_files({{"u", &u}, {"v", &v}, {"u_weights", &a}, {"v_weights", &b}},
                 [&] { entropic::wasserstein_1d<double>(op, x, y, as_row(a), as_row(b), distance); });
  });
}

Table of_histograms(const entropic::WassersteinHistogram& op, const Pair& pair, const Files& files) {
  Numbers p = doubles(files, files.in), q = doubles(files, pair.second);
  if (p.table.cols != q.table.cols) {
    bad_input("wasserstein_histogram: {} has {} columns and {} has {}", files::input_name(files.in), p.table.cols,
              files::input_name(pair.second), q.table.cols);
  }
  Numbers support = weights_of("wasserstein_histogram", files, pair.support, "points");
  if (pair.support.empty()) {
    support.values().resize(p.table.cols);
    std::iota(support.values().begin(), support.values().end(), 0.0);
  }
  entropic::WassersteinHistogram tolerant = op;
  if (!op.sum_tolerance) tolerant.sum_tolerance = std::max(p.tolerance, q.tolerance);
  return of_rows<entropic::WassersteinHistogram>(p, q, [&](auto x, auto y, auto distance) {
    naming_files({{"support", &support}},
                 [&] { entropic::wasserstein_histogram<double>(tolerant, x, y, support.values(), distance); });
  });
}

double distance_of(const entropic::Wasserstein& op, auto... arguments) {
  return entropic::wasserstein<double>(op, arguments...);
}
double distance_of(const entropic::SinkhornDivergence& op, auto... arguments) {
  return entropic::sinkhorn_divergence<double>(op, arguments...);
}

template <class Op>
Table of_points(const Op& op, const Pair& pair, const Files& files) {
  constexpr std::string_view kName = Op::kDescription.name;
  Numbers x = doubles(files, files.in), y = doubles(files, pair.second);
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
  const auto arguments =
      std::make_shared<Arguments>(*find_operation(entropic::family_info<entropic::Transport>(), Op::kDescription.name));
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
    program.action = [op = std::get<Op>(made<entropic::Transport>(*arguments)), pair, evaluate, &files = program.files] {
      write_table(files, evaluate(op, *pair, files));
    };
  });
}

// The three files of a plan. `sums` says which sum the second masses must have.
void add_problem(CLI::App& command, Program& program, Plan& options, std::string_view sums) {
  add_path(command, "--a", options.a, "standard input", "Masses, in one row or column: one for each row of the costs")
      ->option_text("FILE")
      ->required();
  add_path(command, "--b", options.b, "standard input", fmt::format("Masses{}, one for each column of the costs", sums))
      ->option_text("FILE")
      ->required();
  add_path(command, "--cost", options.cost, "standard input",
           "Cost of moving one unit from each mass of --a to each of --b; inf forbids it")
      ->option_text("FILE")
      ->required();
  add_header_options(command, program.files, "numbers");
}

void add_plan_output(CLI::App& command, Program& program) {
  add_output_option(command, program.files, "File for the plan (default: none); - writes the plan instead of the result");
  add_form_options(command, program.files);
}

// A command of masses, costs and the operation's own parameters. Its result is the row between(operation, problem).
template <class Op>
void add_plan(CLI::App& app, Program& program, std::string_view out, std::string_view example) {
  static constexpr std::string_view kName = Op::kDescription.name;
  const auto arguments = std::make_shared<Arguments>(*find_operation(entropic::family_info<entropic::Transport>(), kName));
  const auto options = std::make_shared<Plan>();
  CLI::App& command = *app.add_subcommand(std::string(kName), std::string(Op::kDescription.summary));
  command.group(group_of("transport"));
  add_problem(command, program, *options, "");
  for (std::size_t i = 0; i < arguments->values.size(); ++i) {
    const entropic::ParamInfo& param = arguments->info.params[i];
    add_param(command, param, arguments->values[i])->group("Parameters")->required(param.required);
  }
  add_plan_output(command, program);
  command.footer(fmt::format("{}\n{}Example: entropic {} --a a.csv --b b.csv --cost cost.npy {} -o plan.npy\n{}",
                             Op::kDescription.formula, out, kName, example, kEverywhere));
  command.callback([arguments, options, &program] {
    program.action = [op = std::get<Op>(made<entropic::Transport>(*arguments)), options, &files = program.files] {
      Problem problem(kName, *options, files);
      const Table found = between(op, problem);
      write_both(found, problem.plan, files);
    };
  });
}

struct Many {
  std::string cost, weights;
};

void add_barycenter(CLI::App& app, Program& program) {
  static constexpr std::string_view kName = entropic::SinkhornBarycenter::kDescription.name;
  const auto arguments = std::make_shared<Arguments>(*find_operation(entropic::family_info<entropic::Transport>(), kName));
  const auto options = std::make_shared<Many>();
  CLI::App& command = add_command(app, program, arguments, "Distributions",
                                  "Each row is a distribution and is divided by its sum.\n"
                                  "The output is one row: marginal_error, iterations, status.\n"
                                  "The barycenter goes to OUT; -o - writes it instead of the result.\n",
                                  "p.csv --cost cost.csv --epsilon 0.05 -o barycenter.csv");
  add_path(command, "--cost", options->cost, "standard input",
           "Costs: a row for each column of FILE, a column for each column of the result")
      ->option_text("FILE")
      ->required();
  add_path(command, "--weights", options->weights, "standard input", "Weight of each row (default: equal)")
      ->option_text("FILE");
  command.callback([arguments, options, &program] {
    program.action = [op = std::get<entropic::SinkhornBarycenter>(made<entropic::Transport>(*arguments)), options,
                      &files = program.files] {
      Numbers p = doubles(files, files.in), cost = doubles(files, options->cost);
      Numbers weights = weights_of(kName, files, options->weights);
      std::vector<double> q(cost.table.cols);
      entropic::SinkhornBarycenterResult r;
      naming_files({{"p", &p}, {"cost", &cost}, {"weights", &weights}},
                   [&] { r = entropic::sinkhorn_barycenter<double>(op, p.rows(), weights.values(), cost.rows(), q); });
      Table barycenter;
      barycenter.rows = 1;
      barycenter.cols = q.size();
      barycenter.shape = {1, q.size()};
      barycenter.values = std::move(q);
      write_both(one_row({"marginal_error", "iterations"}, {r.marginal_error, static_cast<double>(r.iterations)}, "status",
                         word_of(r.converged)),
                 barycenter, files);
    };
  });
}

struct Slices {
  std::string second, weights, second_weights, directions;
  std::int64_t projections = 100;
  std::size_t seed = 0;
};

void add_sliced(CLI::App& app, Program& program) {
  static constexpr std::string_view kName = entropic::SlicedWasserstein::kDescription.name;
  const auto arguments = std::make_shared<Arguments>(*find_operation(entropic::family_info<entropic::Transport>(), kName));
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
    program.action = [op = std::get<entropic::SlicedWasserstein>(made<entropic::Transport>(*arguments)), options,
                      &files = program.files] {
      Numbers x = doubles(files, files.in), y = doubles(files, options->second);
      Numbers a = weights_of(kName, files, options->weights), b = weights_of(kName, files, options->second_weights);
      Numbers directions = weights_of(kName, files, "");
      if (options->directions.empty()) {
        Table& drawn = directions.table;
        drawn.rows = static_cast<std::size_t>(options->projections), drawn.cols = x.table.cols;
        directions.values().resize(drawn.rows * drawn.cols);
        entropic::random_directions({directions.values().data(), drawn.rows, drawn.cols}, options->seed);
      } else {
        directions = doubles(files, options->directions);
      }
      entropic::SlicedWassersteinResult r;
      naming_files({{"x", &x}, {"y", &y}, {"a", &a}, {"b", &b}, {"directions", &directions}}, [&] {
        r = entropic::sliced_wasserstein<double>(op, x.rows(), y.rows(), a.values(), b.values(), directions.rows());
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

void add_transport(CLI::App& app, Program& program) {
  const auto options = std::make_shared<BalancedPlan>();
  CLI::App& command = *app.add_subcommand("transport", "The cheapest plan that moves masses a to masses b.");
  command.group(group_of("transport"));
  add_problem(command, program, *options, " of the same sum");
  CLI::Option* const epsilon =
      command
          .add_option_function<std::string>(
              "--epsilon", [options](const std::string& text) { set_number(options->epsilon.emplace(), "--epsilon", text); },
              "Weight of the entropy, in units of the costs, above 0: Sinkhorn's iteration finds a spread-out plan; without "
              "it the plan is the exact optimum")
          ->option_text("NUMBER");
  for (std::size_t i = 0; i < options->entropic.values.size(); ++i) {
    const entropic::ParamInfo& param = options->entropic.info.params[i];
    if (param.name == "epsilon") continue;
    CLI::Option* const option = add_param(command, param, options->entropic.values[i]);
    if (param.name != "mass_tolerance") option->needs(epsilon);
  }
  add_plan_output(command, program);
  command.footer(fmt::format(
      "The output is one row of CSV: cost, gap, status. The optimum is at most gap below cost.\n"
      "With --epsilon the row is: cost, lower_bound, upper_bound (of the optimum), marginal_error, iterations, status.\n"
      "If no plan exists (infeasible), the exit status is 1.\n"
      "Example: entropic transport --a a.csv --b b.csv --cost cost.npy -o plan.npy\n{}",
      kEverywhere));
  command.callback([options, &program] { program.action = [options, &files = program.files] { transport(*options, files); }; });

  add_plan<entropic::PartialTransport>(
      app, program,
      "The output is one row of CSV: cost, multiplier, gap, status.\n"
      "The optimum is at most gap below cost; each further unit of mass costs about multiplier.\n"
      "If no plan exists (infeasible), the exit status is 1.\n",
      "--mass 0.5");

  add_plan<entropic::UnbalancedSinkhorn>(app, program,
                                         "The output is one row of CSV: value, gap, iterations, status.\n"
                                         "The minimum is at most gap below value.\n",
                                         "--epsilon 0.1 --penalty 1");
  add_barycenter(app, program);

  add_distance<entropic::Wasserstein1d>(app, program, of_samples, "Samples", {"--u_weights", "--v_weights"}, false, "V",
                                        "Each row is a sample; a file with one column counts as one row.\n"
                                        "A V with one row is compared with every row of FILE, otherwise row by row.\n"
                                        "Weights hold for all rows.\n",
                                        "before.csv after.csv --order 2");
  add_distance<entropic::WassersteinHistogram>(app, program, of_histograms, "Distributions", {}, true, "Q",
                                               "A Q with one row is compared with every row of FILE, otherwise row by row.\n",
                                               "p.csv q.csv --support ages.csv");
  add_distance<entropic::Wasserstein>(app, program, of_points<entropic::Wasserstein>, "Points", {"--a", "--b"}, false, "Y",
                                      "Each row is a point; the output is one number.\n", "x.csv y.csv --order 2");
  add_sliced(app, program);
  add_distance<entropic::SinkhornDivergence>(app, program, of_points<entropic::SinkhornDivergence>, "Points", {"--a", "--b"},
                                             false, "Y", "Each row is a point; the output is one number.\n",
                                             "x.csv y.csv --epsilon 0.1");
}
