/* The first steps in C99: cc -std=c99 first_steps.c $(pkg-config --cflags --libs entropic) */
#include <entropic/c.h>
#include <stdio.h>

static entropic_array matrix(const char* name, double* data, size_t rows, size_t cols) {
  entropic_array a = {sizeof a, name, data, rows, cols, 0, 0, ENTROPIC_FLOAT64, 0};
  return a;
}

int main(void) {
  double x[] = {2.0, 1.0, 0.1, -1.0}, p[4], entropy;
  entropic_array map[2], measure[2];
  int i;
  map[0] = matrix("x", x, 1, 4);
  map[1] = matrix("y", p, 1, 4);
  measure[0] = matrix("p", p, 1, 4);
  measure[1] = matrix("value", &entropy, 1, 1);
  if (entropic_apply("entmax", "{\"alpha\": 1.3}", map, 2) != ENTROPIC_OK ||
      entropic_apply("entropy", NULL, measure, 2) != ENTROPIC_OK) {
    fprintf(stderr, "%s\n", entropic_last_error());
    return 1;
  }
  for (i = 0; i < 4; ++i) printf("%.4f ", p[i]);
  printf("entropy %.4f\n", entropy);
  if (entropic_apply("softmax", "{\"temperature\": -1}", map, 2) != ENTROPIC_OK) printf("%s\n", entropic_last_error());
  return 0;
}
