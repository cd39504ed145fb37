/* Strict C99 that uses every function of isentropic/c.h. Says nothing where all is well. */
#include <isentropic/c.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;
static void check(int good, const char* what) {
  if (good) return;
  ++failures;
  fprintf(stderr, "%s; last error: %s\n", what, isentropic_last_error());
}

static isentropic_array array(const char* name, void* data, size_t rows, size_t cols, int32_t type) {
  isentropic_array a;
  memset(&a, 0, sizeof a);
  a.struct_size = sizeof a;
  a.name = name;
  a.data = data;
  a.rows = rows;
  a.cols = cols;
  a.type = type;
  return a;
}

/* What a later header may look like: one field more at the end. */
typedef struct {
  isentropic_array array;
  void* later;
} larger_array;

int main(void) {
  double x[6] = {1, 2, 3, 0, 0, 0}, y[6], grad[6] = {1, 0, 0, 0, 1, 0}, dx[6], transposed[6];
  double alpha[2] = {1.5, 2}, d_alpha[2], value[2];
  int32_t classes[2] = {2, 0}, indices[4], status[2];
  double gamma[2], reached[2];
  isentropic_array a[6];
  larger_array larger[2];
  int r, c;

  check(isentropic_interface_version() == ISENTROPIC_C_VERSION, "interface version");
  check(strchr(isentropic_version(), '.') != NULL, "version");
  check(strstr(isentropic_registry(), "\"name\": \"entmax\"") != NULL, "registry");

  a[0] = array("x", x, 2, 3, ISENTROPIC_FLOAT64);
  a[1] = array("y", y, 2, 3, ISENTROPIC_FLOAT64);
  check(isentropic_apply("entmax", "{\"alpha\": 1.3}", a, 2) == ISENTROPIC_OK, "entmax");
  check(fabs(y[0] + y[1] + y[2] - 1) < 1e-12 && fabs(y[3] - 1.0 / 3) < 1e-12, "rows are distributions");

  /* Columns in place of rows. */
  a[1] = array("y", transposed, 2, 3, ISENTROPIC_FLOAT64);
  a[1].row_stride = 1;
  a[1].col_stride = 2;
  check(isentropic_apply("entmax", "{\"alpha\": 1.3}", a, 2) == ISENTROPIC_OK, "strides");
  for (r = 0; r < 2; ++r) {
    for (c = 0; c < 3; ++c) check(transposed[2 * c + r] == y[3 * r + c], "the same through strides");
  }

  /* A parameter with a value for each row, and its gradient. */
  a[1] = array("y", y, 2, 3, ISENTROPIC_FLOAT64);
  a[2] = array("alpha", alpha, 2, 1, ISENTROPIC_FLOAT64);
  check(isentropic_apply("entmax", "", a, 0) == ISENTROPIC_INVALID_ARGUMENT, "no arrays");
  check(isentropic_apply("entmax", NULL, a, 3) == ISENTROPIC_OK, "alpha for each row");
  a[3] = array("grad", grad, 2, 3, ISENTROPIC_FLOAT64);
  a[4] = array("dx", dx, 2, 3, ISENTROPIC_FLOAT64);
  a[5] = array("d_alpha", d_alpha, 2, 1, ISENTROPIC_FLOAT64);
  check(isentropic_apply_vjp("entmax", NULL, a, 6) == ISENTROPIC_OK, "vjp");
  check(fabs(dx[3] + dx[4] + dx[5]) < 1e-12 && dx[4] > 0, "gradients sum to 0");
  check(fabs(d_alpha[1]) < 1e-12, "equal scores do not depend on alpha");

  a[1] = array("target", classes, 2, 1, ISENTROPIC_INT32);
  a[2] = array("value", value, 2, 1, ISENTROPIC_FLOAT64);
  check(isentropic_apply("softmax_loss", NULL, a, 3) == ISENTROPIC_OK, "loss");
  check(fabs(value[1] - log(3.0)) < 1e-12, "its value");

  a[1] = array("gamma", gamma, 2, 1, ISENTROPIC_FLOAT64);
  a[2] = array("reached", reached, 2, 1, ISENTROPIC_FLOAT64);
  a[3] = array("status", status, 2, 1, ISENTROPIC_INT32);
  check(isentropic_apply("gamma_for_entropy", "{\"entropy\": 0.5}", a, 4) == ISENTROPIC_OK, "gamma");
  check(status[0] == 0 && fabs(reached[0] - 0.5) < 1e-9 && status[1] == 3, "status");

  a[1] = array("indices", indices, 2, 2, ISENTROPIC_INT32);
  check(isentropic_apply("sample", "{\"seed\": 18446744073709551615, \"temperature\": 0.5}", a, 2) == ISENTROPIC_OK, "sample");
  for (r = 0; r < 4; ++r) check(indices[r] >= 0 && indices[r] < 3, "an index");

  a[1] = array("y", y, 2, 3, ISENTROPIC_FLOAT64);
  check(isentropic_apply("sampler_probs", "{\"steps\": [{\"name\": \"top_k\", \"k\": 1}]}", a, 2) == ISENTROPIC_OK, "chain");
  check(y[0] == 0 && y[2] == 1 && y[3] == 1, "the largest, and of equal ones the first");

  /* Two heads of one query, each with one key. */
  a[0] = array("q", x, 2, 3, ISENTROPIC_FLOAT64);
  a[1] = array("k", x, 2, 3, ISENTROPIC_FLOAT64);
  a[2] = array("v", x, 2, 3, ISENTROPIC_FLOAT64);
  a[3] = array("out", y, 2, 3, ISENTROPIC_FLOAT64);
  check(isentropic_apply("attention", "{\"heads\": 2, \"map\": \"sparsemax\"}", a, 4) == ISENTROPIC_OK, "attention");
  check(memcmp(y, x, sizeof x) == 0, "the only value");

  a[0] = array("u", x, 2, 3, ISENTROPIC_FLOAT64);
  a[1] = array("v", x, 2, 3, ISENTROPIC_FLOAT64);
  a[2] = array("value", value, 2, 1, ISENTROPIC_FLOAT64);
  check(isentropic_apply("wasserstein_1d", NULL, a, 3) == ISENTROPIC_OK, "transport");
  check(value[0] == 0 && value[1] == 0, "no distance");

  /* Arrays of a later header. */
  memset(larger, 0, sizeof larger);
  larger[0].array = array("x", x, 2, 3, ISENTROPIC_FLOAT64);
  larger[1].array = array("y", y, 2, 3, ISENTROPIC_FLOAT64);
  larger[0].array.struct_size = larger[1].array.struct_size = sizeof(larger_array);
  check(isentropic_apply("softmax", NULL, &larger[0].array, 2) == ISENTROPIC_OK, "a larger struct");

  larger[0].array.struct_size = 8;
  check(isentropic_apply("softmax", NULL, &larger[0].array, 2) == ISENTROPIC_INVALID_ARGUMENT, "a smaller struct");
  check(isentropic_apply(NULL, NULL, NULL, 0) == ISENTROPIC_INVALID_ARGUMENT, "null");
  {
    isentropic_call* call = isentropic_prepare("softmax", "{\"temperature\": 2}", 0);
    check(call != NULL, "prepare");
    a[0] = array("x", x, 1, 3, ISENTROPIC_FLOAT64);
    a[1] = array("y", y, 1, 3, ISENTROPIC_FLOAT64);
    check(isentropic_run(call, a, 2) == ISENTROPIC_OK && fabs(y[0] + y[1] + y[2] - 1) < 1e-12, "run what is prepared");
    isentropic_release(call);
    check(isentropic_prepare("no_such", NULL, 0) == NULL, "prepare an unknown operation");
  }
  return failures != 0;
}
