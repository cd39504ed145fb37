// The maps as commands, softmax's logarithms, and selections.
#include "commands.h"
#include "operation.h"

void add_maps(CLI::App& app, Program& program) {
  add_rows<isentropic::Map>(app, program);
  add_rows<isentropic::Logarithm>(app, program);
  add_rows<isentropic::Selection>(app, program);
}
