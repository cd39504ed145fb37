/* What R's .C calls: it hands over pointers to vectors alone. R CMD SHLIB first_steps_r.c -lentropic */
#include <R.h>
#include <entropic/c.h>

/* Arrays are doubles, one after the other in `numbers`, row by row. */
void apply_to_rows(char** operation, char** parameters, char** names, int* rows, int* cols, int* count, double* numbers) {
  entropic_array arrays[8];
  if (*count > 8) error("at most 8 arrays, got %d", *count);
  for (int i = 0; i < *count; ++i) {
    const entropic_array one = {sizeof(entropic_array), names[i], numbers, (size_t)rows[i], (size_t)cols[i], 0, 0,
                                ENTROPIC_FLOAT64,       0};
    arrays[i] = one;
    numbers += (size_t)rows[i] * (size_t)cols[i];
  }
  if (entropic_apply(*operation, *parameters, arrays, (size_t)*count) != ENTROPIC_OK) error("%s", entropic_last_error());
}
