// Transport as commands: the cheapest plan between two sets of masses, exact or with entropy, and barycenters.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "files/file.h"
#include "files/text.h"
#include "numbers.h"
#include "operation.h"

namespace {

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

// The names of masses in one row or one column; none if there are none.
const std::vector<std::string>& names_of(const Table& masses) {
  static const std::vector<std::string> kNone;
  if (masses.cols > 1) return masses.header;
  return masses.label_column ? masses.labels : kNone;
}

// Refuses masses whose names, if both have names, are not those of the costs in the same order.
void check_names_of(std::string_view command, const Numbers& masses, std::string_view of_costs,
                    const std::vector<std::string>& costs, const std::string& cost_path) {
  const std::vector<std::string>& names = names_of(masses.table);
  for (std::size_t i = 0; i < std::min(names.size(), costs.size()); ++i) {
    if (names[i] == costs[i]) continue;
    bad_input("{}: {} names mass {} {}, and {} names {} {} {}; masses and costs are matched by position", command,
              files::input_name(masses.path), i, files::in_quotes(names[i]), files::input_name(cost_path), of_costs, i,
              files::in_quotes(costs[i]));
  }
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
      : from(one_line(command, "masses", files, options.a, Holds::alone)),
        to(one_line(command, "masses", files, options.b, Holds::alone)),
        cost(doubles(files, options.cost, Holds::alone)),
        plan(cost.table) {
    f.resize(from.values().size());
    g.resize(to.values().size());
    if (plan.rows != f.size() || plan.cols != g.size()) {
      bad_input("{}: {} must be {} x {}, one row for each mass of --a and one column for each of --b, got {} x {}", command,
                files::input_name(options.cost), f.size(), g.size(), plan.rows, plan.cols);
    }
    check_names_of(command, from, "row", plan.labels, options.cost);
    check_names_of(command, to, "column", plan.header, options.cost);
  }

  // solve(a, b, cost, plan, f, g)
  void solve(const auto& by) {
    const std::size_t n = f.size(), m = g.size();
    naming_files({{"a", &from}, {"b", &to}, {"cost", &cost}}, [&] {
      by(isentropic::MatrixView<const double>(from.values().data(), 1, n),
         isentropic::MatrixView<const double>(to.values().data(), 1, m), isentropic::MatrixView<const double>(cost.rows()),
         isentropic::MatrixView<double>(std::get<std::vector<double>>(plan.values).data(), n, m),
         isentropic::MatrixView<double>(f.data(), 1, n), isentropic::MatrixView<double>(g.data(), 1, m));
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

std::string_view word_of(std::string_view command, isentropic::TransportStatus status) {
  if (status == isentropic::TransportStatus::infeasible) {
    throw std::runtime_error(fmt::format("{}: infeasible: every plan needs an entry of cost inf", command));
  }
  return isentropic::kTransportStatusNames[static_cast<std::size_t>(status)];
}

std::string_view word_of(bool converged) { return converged ? "converged" : "not converged"; }

Table between(const isentropic::PartialTransport& op, Problem& problem) {
  std::vector<isentropic::PartialTransportResult> result(1);
  problem.solve([&](auto... views) { isentropic::partial_transport<double>(op, views..., result); });
  const isentropic::PartialTransportResult& r = result[0];
  return one_row({"cost", "multiplier", "gap"}, {r.cost, r.multiplier, r.gap}, "status",
                 word_of(isentropic::Described<isentropic::PartialTransport>::kDescription.name, r.status));
}

Table between(const isentropic::UnbalancedSinkhorn& op, Problem& problem) {
  std::vector<isentropic::UnbalancedSinkhornResult> result(1);
  problem.solve([&](auto... views) { isentropic::unbalanced_sinkhorn<double>(op, views..., result); });
  const isentropic::UnbalancedSinkhornResult& r = result[0];
  return one_row({"value", "gap", "iterations"}, {r.value, r.gap, static_cast<double>(r.iterations)}, "status",
                 word_of(r.converged));
}

struct BalancedPlan : Plan {
  std::optional<double> epsilon;
  Arguments isentropic = Arguments(*find_operation(isentropic::family_info<isentropic::Transport>(), "sinkhorn"));
};

// Refuses a problem without a plan, for which Sinkhorn's iteration would not end. The exact solver finds a plan at once if all
// allowed moves are free.
void require_plan(Problem& problem, double mass_tolerance) {
  const std::vector<double> cost = problem.cost.values();
  if (std::ranges::find(cost, std::numeric_limits<double>::infinity()) == cost.end()) return;
  for (double& one : problem.cost.values()) one = std::isfinite(one) ? 0 : one;
  std::vector<isentropic::TransportResult> result(1);
  problem.solve([&](auto... views) { isentropic::optimal_transport<double>({mass_tolerance}, views..., result); });
  word_of("transport", result[0].status);
  problem.cost.values() = cost;
}

void transport(const BalancedPlan& options, const Files& files) {
  Problem problem("transport", options, files);
  Arguments arguments = options.isentropic;
  const auto argument = [&](std::string_view name) -> isentropic::ParamValue& {
    std::size_t i = 0;
    while (arguments.info.params[i].name != name) ++i;
    return arguments.values[i];
  };
  const auto* const given = std::get_if<double>(&argument("mass_tolerance"));
  const double mass_tolerance = given != nullptr ? *given : std::max(problem.from.tolerance, problem.to.tolerance);
  if (options.epsilon) {
    std::vector<isentropic::SinkhornResult> result(1);
    argument("epsilon") = *options.epsilon;
    argument("mass_tolerance") = mass_tolerance;
    const auto op = std::get<isentropic::Sinkhorn>(made<isentropic::Transport>(arguments));
    require_plan(problem, mass_tolerance);
    problem.solve([&](auto... views) { isentropic::sinkhorn<double>(op, views..., result); });
    const isentropic::SinkhornResult& r = result[0];
    const Table found = one_row({"cost", "lower_bound", "upper_bound", "marginal_error", "iterations"},
                                {r.cost, r.lower_bound, r.upper_bound, r.marginal_error, static_cast<double>(r.iterations)},
                                "status", word_of(r.converged));
    write_both(found, problem.plan, files);
  } else {
    std::vector<isentropic::TransportResult> result(1);
    problem.solve([&](auto... views) { isentropic::optimal_transport<double>({mass_tolerance}, views..., result); });
    const std::string_view status = word_of("transport", result[0].status);
    write_both(one_row({"cost", "gap"}, {result[0].cost, result[0].gap}, "status", status), problem.plan, files);
  }
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
  static constexpr std::string_view kName = isentropic::Described<Op>::kDescription.name;
  const auto arguments = std::make_shared<Arguments>(*find_operation(isentropic::family_info<isentropic::Transport>(), kName));
  const auto options = std::make_shared<Plan>();
  CLI::App& command = *app.add_subcommand(std::string(kName), std::string(isentropic::Described<Op>::kDescription.summary));
  command.group(group_of("transport"));
  add_problem(command, program, *options, "");
  for (std::size_t i = 0; i < arguments->values.size(); ++i) {
    const isentropic::ParamInfo& param = arguments->info.params[i];
    add_param(command, param, arguments->values[i])->group("Parameters")->required(param.required);
  }
  add_plan_output(command, program);
  command.footer(fmt::format("{}\n{}Example: isentropic {} --a a.csv --b b.csv --cost cost.npy {} -o plan.npy\n{}",
                             isentropic::Described<Op>::kDescription.formula, out, kName, example, kEverywhere));
  command.callback([arguments, options, &program] {
    program.action = [op = std::get<Op>(made<isentropic::Transport>(*arguments)), options, &files = program.files] {
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
  static constexpr std::string_view kName = isentropic::Described<isentropic::SinkhornBarycenter>::kDescription.name;
  const auto arguments = std::make_shared<Arguments>(*find_operation(isentropic::family_info<isentropic::Transport>(), kName));
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
    program.action = [op = std::get<isentropic::SinkhornBarycenter>(made<isentropic::Transport>(*arguments)), options,
                      &files = program.files] {
      Numbers p = doubles(files, files.in), cost = doubles(files, options->cost);
      Numbers weights = weights_of(kName, files, options->weights);
      std::vector<double> q(cost.table.cols);
      isentropic::SinkhornBarycenterResult r;
      naming_files({{"p", &p}, {"cost", &cost}, {"weights", &weights}},
                   [&] { r = isentropic::sinkhorn_barycenter<double>(op, p.rows(), weights.values(), cost.rows(), q); });
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
  const isentropic::OperationInfo& exact =
      *find_operation(isentropic::family_info<isentropic::Transport>(), "optimal_transport");
  for (std::size_t i = 0; i < options->isentropic.values.size(); ++i) {
    const isentropic::ParamInfo& param = options->isentropic.info.params[i];
    if (param.required) continue;  // epsilon
    CLI::Option* const option = add_param(command, param, options->isentropic.values[i]);
    const bool of_exact = std::ranges::any_of(exact.params, [&](const auto& one) { return one.name == param.name; });
    if (!of_exact) option->needs(epsilon);
  }
  add_plan_output(command, program);
  command.footer(fmt::format(
      "The output is one row of CSV: cost, gap, status. The optimum is at most gap below cost.\n"
      "With --epsilon the row is: cost, lower_bound, upper_bound (of the optimum), marginal_error, iterations, status.\n"
      "If no plan exists (infeasible), the exit status is 1.\n"
      "Example: isentropic transport --a a.csv --b b.csv --cost cost.npy -o plan.npy\n{}",
      kEverywhere));
  command.callback([options, &program] { program.action = [options, &files = program.files] { transport(*options, files); }; });

  add_plan<isentropic::PartialTransport>(
      app, program,
      "The output is one row of CSV: cost, multiplier, gap, status.\n"
      "The optimum is at most gap below cost; each further unit of mass costs about multiplier.\n"
      "If no plan exists (infeasible), the exit status is 1.\n",
      "--mass 0.5");

  add_plan<isentropic::UnbalancedSinkhorn>(app, program,
                                           "The output is one row of CSV: value, gap, iterations, status.\n"
                                           "The minimum is at most gap below value.\n",
                                           "--epsilon 0.1 --penalty 1");
  add_barycenter(app, program);
}
