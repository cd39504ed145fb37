/* The first steps in C99: cc -std=c99 first_steps.c $(pkg-config --cflags --libs isentropic) */
#include <isentropic/c.h>
#include <stdio.h>

static isentropic_array matrix(const char* name, double* data, size_t rows, size_t cols) {
  isentropic_array a = {sizeof a, name, data, rows, cols, 0, 0, ISENTROPIC_FLOAT64, 0};
  return a;
}

int main(void) {
  double x[] = {2.0, 1.0, 0.1, -1.0}, p[4], entropy;
  isentropic_array map[2], measure[2];
  int i;
  map[0] = matrix("x", x, 1, 4);
  map[1] = matrix("y", p, 1, 4);
  measure[0] = matrix("p", p, 1, 4);
  measure[1] = matrix("value", &entropy, 1, 1);
  if (isentropic_apply("entmax", "{\"alpha\": 1.3}", map, 2) != ISENTROPIC_OK ||
      isentropic_apply("entropy", NULL, measure, 2) != ISENTROPIC_OK) {
    fprintf(stderr, "%s\n", isentropic_last_error());
    return 1;
  }
  for (i = 0; i < 4; ++i) printf("%.4f ", p[i]);
  printf("entropy %.4f\n", entropy);
  if (isentropic_apply("softmax", "{\"temperature\": -1}", map, 2) != ISENTROPIC_OK) printf("%s\n", isentropic_last_error());
  return 0;
}
