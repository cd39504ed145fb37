/* What R's .C calls: it hands over pointers to vectors alone. R CMD SHLIB first_steps_r.c -lisentropic */
#include <R.h>
#include <isentropic/c.h>

/* Arrays are doubles, one after the other in `numbers`, row by row. */
void apply_to_rows(char** operation, char** parameters, char** names, int* rows, int* cols, int* count, double* numbers) {
  isentropic_array arrays[8];
  if (*count > 8) error("at most 8 arrays, got %d", *count);
  for (int i = 0; i < *count; ++i) {
    const isentropic_array one = {sizeof(isentropic_array), names[i], numbers, (size_t)rows[i], (size_t)cols[i], 0, 0,
                                ISENTROPIC_FLOAT64,       0};
    arrays[i] = one;
    numbers += (size_t)rows[i] * (size_t)cols[i];
  }
  if (isentropic_apply(*operation, *parameters, arrays, (size_t)*count) != ISENTROPIC_OK) error("%s", isentropic_last_error());
}
